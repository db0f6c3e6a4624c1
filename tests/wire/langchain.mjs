// Calls models with LangChain. One JSON object a line in, one out.
//
//   {"do": "whole" | "stream" | "tools" | "structured", "text": the message, "responses": whether by the Responses API}
//   {"do": "embed", "text": a text}
//
// What comes out: what LangChain made of it, or {"error": "..."}.
import { createInterface } from "node:readline";
import { HumanMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { z } from "zod";

const [, , base, apiKey] = process.argv;
const given = { apiKey, configuration: { baseURL: `${base}/v1/llm` }, maxRetries: 0 };
const place = z.object({ city: z.string() });
const weather = tool(() => "It is raining.", { name: "weather", description: "The weather", schema: place });

const does = {
  async whole(model, text) {
    const answer = await model.invoke(text);
    return { text: answer.text, usage: answer.usage_metadata };
  },

  async stream(model, text) {
    let whole;
    for await (const chunk of await model.stream(text)) whole = whole?.concat(chunk) ?? chunk;
    return { text: whole.text, usage: whole.usage_metadata };
  },

  async tools(model, text) {
    const bound = model.bindTools([weather]);
    const asked = new HumanMessage(text);
    const called = await bound.invoke([asked]);
    const results = await Promise.all(called.tool_calls.map((call) => weather.invoke(call)));
    return { text: (await bound.invoke([asked, called, ...results])).text };
  },

  structured: async (model, text) => ({ object: await model.withStructuredOutput(place).invoke(text) }),

  async embed(_, text) {
    const model = new OpenAIEmbeddings({ ...given, model: "stand-in-embedding", dimensions: 4 });
    return { vectors: await model.embedDocuments([text]) };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { do: what, text, responses } = JSON.parse(line);
  const model = new ChatOpenAI({ ...given, model: "stand-in-small", useResponsesApi: responses });
  const result = await does[what](model, text).catch((error) => ({ error: String(error) }));
  process.stdout.write(`${JSON.stringify(result)}\n`);
}
