// @ts-check
/** An issuer of upload tokens for tests: a key, the document that shows it, and signatures. */

import { constants, createHash, generateKeyPairSync, privateDecrypt, verify } from "node:crypto";

import { concatBytes, unhex } from "../../src/bytes.js";
import { base64url } from "../../src/tokens/base64url.js";

const HEAD = unhex(
  "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d010108" +
    "300b0609608648016503040202a2030201300382010f003082010a0282010100",
);

/** A key that signs blinded messages. */
export class Mint {
  constructor() {
    const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    this.private = privateKey;
    this.public = publicKey;
    const modulus = new Uint8Array(Buffer.from(publicKey.export({ format: "jwk" }).n ?? "", "base64url"));
    this.encoded = concatBytes(HEAD, modulus, unhex("0203010001"));
    this.id = createHash("sha256").update(this.encoded).digest();
  }

  /** The answer to a request for a token. @param {Buffer} request */
  sign(request) {
    return privateDecrypt({ key: this.private, padding: constants.RSA_NO_PADDING }, request.subarray(3));
  }

  /** Whether a header spends a token that this key has signed. @param {string | undefined} header */
  signed(header) {
    const token = Buffer.from(/^PrivateToken token="([A-Za-z0-9_=-]+)"$/.exec(header ?? "")?.[1] ?? "", "base64url");
    const key = { key: this.public, padding: constants.RSA_PKCS1_PSS_PADDING, saltLength: 48 };
    return token.length === 354 && token.subarray(66, 98).equals(this.id) && verify("sha384", token.subarray(0, 98), key, token.subarray(98));
  }
}

/** The document that shows keys. @param {string} issuer @param {Mint[]} mints @param {{after?: number, before?: number}} [times] */
export const directory = (issuer, mints, { before = 0, after = 4e9 } = {}) =>
  JSON.stringify({
    issuer,
    experiments: {
      test: {
        "issuer-request-uri": "/experiments/test/tokens",
        "token-keys": mints.map((one, place) => ({
          "token-type": 2, "token-key": base64url(one.encoded), "not-before": before + place, "not-after": after + place,
        })),
      },
    },
  });
