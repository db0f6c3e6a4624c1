// Verifies access tokens with jose, as a web client would. One JSON object a line in, one out.
//
//   {"fetch": "name"}                     keeps the published list of now under a name, for later use without the net
//   {"verify": token, "with": "remote"}   by the set that this process keeps, as jose fetches and keeps it
//   {"verify": token, "with": "cold"}     by a set that knows nothing yet
//   {"verify": token, "with": name}       by a kept list
//   {"pass": seconds}                     jose's clock for the age of its set goes on by so much
import { createInterface } from "node:readline";
import { createLocalJWKSet, createRemoteJWKSet, jwtVerify } from "jose";

const [, , address, issuer] = process.argv;
const real = Date.now;
let ahead = 0;
Date.now = () => real() + ahead * 1000;

const remote = createRemoteJWKSet(new URL(address));
const kept = {};

function setOf(name) {
  if (name === "remote") return remote;
  if (name === "cold") return createRemoteJWKSet(new URL(address));
  return createLocalJWKSet(kept[name]);
}

async function done({ fetch: name, verify, with: by, pass }) {
  if (pass !== undefined) ahead += pass;
  if (name !== undefined) kept[name] = await (await fetch(address)).json();
  if (verify === undefined) return {};
  const options = { issuer, algorithms: ["RS256"], typ: "at+jwt", currentDate: new Date(real()) };
  const { payload, protectedHeader } = await jwtVerify(verify, setOf(by), options);
  return { sub: payload.sub, kid: protectedHeader.kid };
}

for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = await done(JSON.parse(line));
  } catch (error) {
    answer = { error: error.code ?? String(error) };
  }
  console.log(JSON.stringify(answer));
}
