// Uses what openapi-generator makes of the schema for TypeScript (`typescript-fetch`).
// `tests/served/test_openapi_generator.py` compiles and runs it.
import { AccessApi, Configuration, LicenceApi, ModelsApi, ReleasesApi, ResponseError } from "./client/index";

const { BASE_URL: basePath = "", EMAIL: email = "", PASSWORD: password = "" } = process.env;

async function code(asked: Promise<unknown>): Promise<string> {
  const error = await asked.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  if (!(error instanceof ResponseError)) throw new Error("this was not refused");
  return ((await error.response.json()) as { code: string }).code;
}

async function main(): Promise<void> {
  const access = new AccessApi(new Configuration({ basePath }));
  const refused = await code(access.login({ loginRequest: { email, password: "not this one" } }));
  const pair = await access.login({ loginRequest: { email, password } });
  const here = new Configuration({ basePath, accessToken: pair.access });
  const licence = await new LicenceApi(here).licenseStatus();
  const whole = await new ModelsApi(here).llmComplete({
    llmCompleteRequest: { messages: [{ role: "user", content: "Hello" }], maxTokens: 30, n: 1 },
  });
  const text = whole.choices[0]?.message.content;
  const seen = await code(new ReleasesApi(here).appManifest({ slug: "nothing-such" }));
  console.log(JSON.stringify({ licence: licence.status, text, refused, seen }));
}

void main();
