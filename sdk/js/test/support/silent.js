// @ts-check
/** Services that give no answer that a device can use. */

import { createServer as createHttp } from "node:http";
import { createServer } from "node:net";

/** Where nothing listens, or what hangs, answers junk, or answers with a page. @param {"closed" | "hangs" | "junk" | "page" | string} kind
 * @param {(url: string) => Promise<void>} use */
export async function listening(kind, use) {
  const service = kind === "page" ? createHttp((_, response) => response.writeHead(503).end("<html>")) : createServer();
  service.on("connection", (socket) => {
    socket.on("error", () => {});
    if (kind === "junk") socket.once("data", () => socket.end("220 mail.example ESMTP\r\n"));
  });
  /** @type {Set<import("node:net").Socket>} */
  const sockets = new Set();
  service.on("connection", (socket) => sockets.add(socket));
  await new Promise((resolve) => service.listen(0, "127.0.0.1", () => resolve(null)));
  const url = `http://127.0.0.1:${/** @type {import("node:net").AddressInfo} */ (service.address()).port}`;
  if (kind === "closed") await new Promise((resolve) => service.close(resolve));
  try {
    await use(url);
  } finally {
    for (const socket of sockets) socket.destroy();
    service.close();
  }
}
