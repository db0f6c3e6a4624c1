// A session of a shell: BASE_URL, EMAIL, PASSWORD and VERSION in the environment say where, who and what.
import { isBelow, type Kept, Refused, Shell } from "./shell.js";

const { BASE_URL = "http://127.0.0.1:8000", EMAIL = "", PASSWORD = "", VERSION = "1.0.0", SIGN_OUT } = process.env;
let keychain: Kept | undefined;

const shell = new Shell(BASE_URL, keychain, async (kept) => {
  keychain = kept;
});

/** With no device free a shell lists them, and its person chooses one: here by its name in SIGN_OUT. */
async function signIn(): Promise<void> {
  try {
    await shell.signIn(EMAIL, PASSWORD);
  } catch (refused) {
    if (!(refused instanceof Refused) || refused.problem.code !== "device_limit_reached") throw refused;
    const devices = refused.problem.devices ?? [];
    for (const each of devices) console.log(`device: ${each.device || "unnamed"}, last used ${each.last_used_at}`);
    const chosen = devices.find((each) => each.device === SIGN_OUT);
    if (!chosen) throw refused;
    await shell.signIn(EMAIL, PASSWORD, chosen.id);
  }
}

try {
  await signIn();
  const first = await shell.licence();
  console.log(`licence: ${first.status}, apps: ${first.entitlements.join(" ")}`);

  if (first.message) console.log(`${first.message.level}: ${first.message.text}`);
  if (first.minimum_version && isBelow(VERSION, first.minimum_version)) {
    // The update screen alone.
    console.log(`update: ${VERSION} must become ${first.minimum_version} or newer`);
    process.exit();
  }

  const before = keychain;
  await shell.renew();
  console.log(`renewed: ${keychain !== before}, unchanged: ${(await shell.licence()) === first}`);

  let answer = "";
  const messages = [{ role: "user" as const, content: "Say hello." }];
  for await (const chunk of shell.ask({ messages, max_tokens: 50 })) {
    answer += chunk.choices[0]?.delta?.content ?? "";
  }
  console.log(`answer: ${answer}`);

  const { input, output } = await shell.usage();
  console.log(`usage: ${input.used} in, ${output.used} of ${output.cap ?? "any number"} out`);

  const taken = await shell.report("session_shown", { model: { words: answer.split(" ").length } });
  console.log(`telemetry: ${taken.accepted} accepted`);

  await shell.logOut();
  console.log(`signed out: ${keychain === undefined}`);
} catch (refused) {
  if (!(refused instanceof Refused)) throw refused;
  console.error(`${refused.problem.code}: ${refused.message}`);
  process.exitCode = 1;
}
