// Receives signed callbacks of Trilogue. Needs Node.js 18 and nothing else.
//
//   CALLBACK_SECRET=$(trilogue webhooks secret http://127.0.0.1:8800/hook) node receiver.mjs 8800

import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const MAX_BODY_BYTES = 16 * 1024 * 1024;
const MAX_AGE_SECONDS = 5 * 60;
const MAX_SIGNATURES = 16;
// The number of remembered ids: a repeated attempt has the id of the first.
const MAX_IDS = 10_000;

/** Reads the secrets. Two, separated by a space, are valid while the server changes its own. */
function readSecrets(text) {
  const words = text.split(" ").filter((word) => word !== "");
  const secrets = words.map((word) => Buffer.from(word.replace(/^whsec_/, ""), "base64"));
  if (secrets.length === 0 || secrets.some((secret) => secret.length === 0)) {
    throw new Error("set CALLBACK_SECRET to what `trilogue webhooks secret URL` prints");
  }
  return secrets;
}

/** Whether a callback was signed with one of the secrets, at most five minutes ago. */
export function isGenuine(secrets, headers, body, now) {
  const id = headers["webhook-id"];
  const sent = headers["webhook-timestamp"] ?? "";
  if (!id || !/^[0-9]{1,12}$/.test(sent) || Math.abs(now - Number(sent)) > MAX_AGE_SECONDS) {
    return false;
  }
  const words = (headers["webhook-signature"] ?? "").split(" ").slice(0, MAX_SIGNATURES);
  const signatures = words
    .filter((word) => word.startsWith("v1,"))
    .map((word) => Buffer.from(word.slice(3), "base64"));
  return secrets.some((secret) => {
    // Signs the received bytes, not JSON that was parsed and written again.
    const hmac = createHmac("sha256", secret).update(`${id}.${sent}.`, "latin1").update(body);
    const expected = hmac.digest();
    // `timingSafeEqual` takes the same time for every wrong signature.
    return signatures.some(
      (signature) => signature.length === expected.length && timingSafeEqual(signature, expected),
    );
  });
}

/** The body of a request. `undefined` if it is too large. */
async function readBody(request) {
  const pieces = [];
  let bytes = 0;
  for await (const piece of request) {
    bytes += piece.length;
    if (bytes > MAX_BODY_BYTES) return undefined;
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

const secrets = readSecrets(process.env.CALLBACK_SECRET ?? "");
const ids = new Set();

async function receive(request, response) {
  const answer = (status) => response.writeHead(status, { connection: "close" }).end();
  if (request.method !== "POST") return answer(405);
  if (Number(request.headers["content-length"]) > MAX_BODY_BYTES) return answer(413);
  const body = await readBody(request);
  if (body === undefined) return answer(413);
  if (!isGenuine(secrets, request.headers, body, Date.now() / 1000)) return answer(401);
  const id = request.headers["webhook-id"];
  if (!ids.has(id)) {
    ids.add(id);
    if (ids.size > MAX_IDS) ids.delete(ids.values().next().value);
    // Your own work belongs here. Keep it short by using a queue; otherwise the server retries.
    console.log(JSON.stringify({ id, body: body.toString() }));
  }
  answer(204);
}

const server = createServer((request, response) => {
  receive(request, response).catch(() => response.destroy());
});
server.listen(Number(process.argv[2]), "127.0.0.1", () => console.log("listening"));
