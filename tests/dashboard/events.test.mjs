import assert from "node:assert/strict";
import { createServer } from "node:http";
import { once } from "node:events";
import { test } from "node:test";

import { Silent } from "../../server/privateer_server/dashboard/errors.mjs";
import { listen, Messages, NoStream } from "../../server/privateer_server/dashboard/events.mjs";
import { merged } from "../../server/privateer_server/dashboard/news.mjs";

test("messages are the same however the stream is cut", () => {
  const text = ': hello\n\nid: a-1\ndata: {"x":1}\n\n:\n\nid: a-2\r\ndata: {\r\ndata: "x":2}\r\n\r\nid: a-3\nda';
  const whole = new Messages().take(text);
  assert.deepEqual(whole, [null, { id: "a-1", data: '{"x":1}' }, null, { id: "a-2", data: '{\n"x":2}' }]);
  for (const size of [1, 2, 3, 7]) {
    const cut = new Messages(), found = [];
    for (let at = 0; at < text.length; at += size) found.push(...cut.take(text.slice(at, at + size)));
    assert.deepEqual(found.filter(Boolean), whole.filter(Boolean));
  }
});

async function serving(answer) {
  const server = createServer(answer).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { at: `http://127.0.0.1:${server.address().port}/events`, end: () => (server.closeAllConnections(), server.close()) };
}

test("a stream is heard in order, with the id of the last message at the next time", async () => {
  const asked = [];
  const { at, end } = await serving((request, response) => {
    asked.push(request.headers["last-event-id"] ?? "");
    response.end('id: a-1\ndata: {"n":1}\n\n:\n\nid: a-2\ndata: {"n":2}\n\n');
  });
  const heard = [];
  await listen(at, "", async (one) => { heard.push(one); }, new AbortController().signal);
  await listen(at, heard.at(-1).id, () => {}, new AbortController().signal);
  end();
  assert.deepEqual(heard, [{ id: "a-1", data: { n: 1 } }, null, { id: "a-2", data: { n: 2 } }]);
  assert.deepEqual(asked, ["", "a-2"]);
});

test("a refusal is no stream, and a connection that breaks is an error", async () => {
  const refusing = await serving((_, response) => response.writeHead(503).end("{}"));
  await assert.rejects(listen(refusing.at, "", () => {}, new AbortController().signal), NoStream);
  refusing.end();
  const breaking = await serving((request, response) => {
    response.write("id: a-1\ndata: {}\n\n");
    setTimeout(() => request.socket.destroy(), 50);
  });
  await assert.rejects(listen(breaking.at, "", () => {}, new AbortController().signal));
  breaking.end();
});

test("a server that falls silent is noticed", async () => {
  const { at, end } = await serving((_, response) => response.write("id: a-1\ndata: {}\n\n"));
  const heard = [];
  const listening = listen(at, "", async (one) => { heard.push(one.id); }, new AbortController().signal, { opening: 5000, quiet: 100 });
  await assert.rejects(listening, Silent).finally(end);
  assert.deepEqual(heard, ["a-1"]);
});

test("news change what is there, and leave the rest in its place", () => {
  const one = (name, accepted) => ({ name, accepted }), before = [one("a", 1), one("b", 2), one("c", 3)];
  assert.equal(merged(before, null), before);
  assert.deepEqual(merged(before, { whole: false, experiments: [one("d", 0), one("b", 5)], deleted: ["a"] }), [one("b", 5), one("c", 3), one("d", 0)]);
  assert.deepEqual(merged(before, { whole: true, experiments: [one("d", 0)], deleted: [] }), [one("d", 0)]);
});
