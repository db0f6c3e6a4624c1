// Uses what openapi-typescript makes of the schema, where types matter most. `tests/served/test_generated_clients.py`
// compiles and runs it, and holds that it does not compile once a piece of it is wrong.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Schemas = components["schemas"];

const { BASE_URL = "", EMAIL = "", PASSWORD = "" } = process.env;
const api = createClient<paths>({ baseUrl: BASE_URL });

const refused = await api.POST("/v1/auth/login", { body: { email: EMAIL, password: "not this one" } });
if (refused.error?.code !== "invalid_credentials") throw new Error("a wrong password was taken");
const login = await api.POST("/v1/auth/login", { body: { email: EMAIL, password: PASSWORD, device_fp: "typed" } });
if (login.error) throw new Error(login.error.detail);
const authorization = `Bearer ${login.data.access}`;
api.use({ onRequest: ({ request }) => request.headers.set("Authorization", authorization) });

const weather: Schemas["Tool"] = {
  type: "function",
  function: {
    name: "weather",
    description: "The weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string" } } },
  },
};
const format: Schemas["ResponseFormat"] = {
  type: "json_schema",
  json_schema: { name: "place", schema: { type: "object", properties: { city: { type: "string" } } } },
};
const named: Schemas["ToolChoice"] = { type: "function", function: { name: "weather" } };
const choice: Schemas["ChatRequest"]["tool_choice"] = "none";
const messages: Schemas["Message"][] = [{ role: "user", content: [{ type: "text", text: "Hello" }] }];
const ask: Schemas["ChatRequest"] = { messages, tools: [weather], tool_choice: choice, metadata: { trace: "t1" } };

const whole = await api.POST("/v1/llm/complete", { body: { ...ask, stream: false, max_tokens: 30 } });
if (whole.error) {
  if (whole.error.code === "monthly_cap_exceeded") console.log(whole.error.cap, whole.error.dimension);
  throw new Error(whole.error.error.message);
}
const said = whole.data.choices[0]?.message;
const text: string = said?.content ?? "";
const used: number = whole.data.usage.completion_tokens;
console.log(JSON.stringify({ text, used, kind: said?.role }));
if (said) messages.push(said, { role: "user", content: "Go on." });

const forced = { messages, tools: [weather], tool_choice: named, response_format: format };
const again = await api.POST("/v1/llm/chat/completions", { body: forced });
const wrong = await api.POST("/v1/llm/complete", { body: { messages: [], max_tokens: 30 } });
console.log(JSON.stringify({ again: again.response.status, wrong: wrong.error?.errors?.[0]?.pointer }));

const response = await api.POST("/v1/llm/responses", { body: { input: "Hello", store: false } });
const answered = response.data;
// As an SDK's, the answer is one object or a stream, by a member of the request.
const output = typeof answered === "object" && "output" in answered ? answered.output.at(-1) : undefined;
const turned = await api.POST("/v1/llm/embeddings", { body: { model: "stand-in-small", input: ["a", "b"] } });
console.log(JSON.stringify({ output: output?.content?.[0]?.text, turned: turned.data?.data.length ?? turned.error?.code }));

const event = { id: crypto.randomUUID(), name: "typed", occurred_at: new Date().toISOString() };
const properties = { nested: { list: [1, "two", null] } };
const taken = await api.POST("/v1/telemetry", { body: { events: [{ ...event, properties }] } });
const seen = await api.GET("/v1/apps/{slug}/manifest", { params: { path: { slug: "nothing-such" } } });
console.log(JSON.stringify({ accepted: taken.data?.accepted, status: seen.error?.status, code: seen.error?.code }));
