/** What libraries of others make of a question, read from standard input. It runs in requirements/interop, where they are. */

import * as core from "@hpke/core";
import canonicalize from "canonicalize";
import * as panva from "hpke";
import { text } from "node:stream/consumers";

import { seal } from "../../sdk/js/src/sealing.js";

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const bytes = (digits) => new Uint8Array(Buffer.from(digits, "hex"));
const joined = (...parts) => hex(Buffer.concat(parts.map((part) => new Uint8Array(part))));

async function hpkeCore(key, publicKey, info) {
  const kem = new core.DhkemX25519HkdfSha256();
  const suite = new core.CipherSuite({ kem, kdf: new core.HkdfSha256(), aead: new core.Aes128Gcm() });
  const recipientKey = await kem.importKey("raw", key.buffer, false);
  const recipientPublicKey = await kem.importKey("raw", publicKey.buffer, true);
  return {
    async seal(message) {
      const sender = await suite.createSenderContext({ recipientPublicKey, info });
      return joined(sender.enc, await sender.seal(message));
    },
    async open(enc, ciphertext) {
      const recipient = await suite.createRecipientContext({ recipientKey, enc, info });
      return hex(await recipient.open(ciphertext));
    },
  };
}

async function hpke(key, publicKey, info) {
  const { AEAD_AES_128_GCM, KDF_HKDF_SHA256, KEM_DHKEM_X25519_HKDF_SHA256 } = panva;
  const suite = new panva.CipherSuite(KEM_DHKEM_X25519_HKDF_SHA256, KDF_HKDF_SHA256, AEAD_AES_128_GCM);
  const secret = await suite.DeserializePrivateKey(key, true);
  const recipient = await suite.DeserializePublicKey(publicKey);
  return {
    async seal(message) {
      const { encapsulatedSecret, ciphertext } = await suite.Seal(recipient, message, { info });
      return joined(encapsulatedSecret, ciphertext);
    },
    async open(enc, ciphertext) {
      return hex(await suite.Open(secret, enc, ciphertext, { info }));
    },
  };
}

/** Our SDK only seals: the libraries open its reports. */
const sdk = (publicKey, info) => ({ seal: async (message) => hex(await seal(message, publicKey, info)) });

async function answer(question) {
  if ("documents" in question) {
    return { canonicalize: question.documents.map((document) => canonicalize(JSON.parse(document))) };
  }
  const [key, publicKey, info] = [question.key, question.public, question.info].map(bytes);
  const libraries = {
    "@hpke/core": await hpkeCore(key, publicKey, info),
    hpke: await hpke(key, publicKey, info),
    sdk: sdk(publicKey, info),
  };
  const answers = {};
  for (const [name, library] of Object.entries(libraries)) {
    const sealed = await Promise.all(question.messages.map(bytes).map(library.seal));
    const opened = library.open ? question.sealed.map(bytes).map((one) => library.open(one.slice(0, 32), one.slice(32))) : [];
    answers[name] = { sealed, opened: await Promise.all(opened) };
  }
  return answers;
}

console.log(JSON.stringify(await answer(JSON.parse(await text(process.stdin)))));
