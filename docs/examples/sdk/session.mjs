// OpenAI's, LangChain's, the AI and Anthropic's SDK with a token that renews itself, in Node and in a webview alike.
import OpenAI from "openai";
import { ChatOpenAI } from "@langchain/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";

const { BASE_URL: base, EMAIL: email, PASSWORD: password } = process.env;

class Session {
  #renewal;

  static async signIn(baseURL, email, password) {
    const session = new Session();
    session.baseURL = baseURL;
    await session.#post("login", { email, password });
    return session;
  }

  // What an SDK takes as its key.
  token = async () => {
    if (Date.now() >= this.renewAt) {
      this.#renewal ??= this.#post("refresh", { refresh: this.refresh }, { "Idempotency-Key": this.key });
      await this.#renewal.finally(() => (this.#renewal = undefined));
    }
    return this.access;
  };

  // For an SDK that takes no function as its key.
  fetch = async (input, init) => {
    const headers = new Headers(init?.headers);
    headers.set("Authorization", `Bearer ${await this.token()}`);
    return fetch(input, { ...init, headers });
  };

  async #post(what, body, headers) {
    const response = await fetch(`${this.baseURL}/v1/auth/${what}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...headers },
      body: JSON.stringify(body),
    });
    const answer = await response.json();
    if (!response.ok) throw new Error(`${answer.code}: ${answer.detail}`);
    // A shell writes `refresh` and `key` to the keychain here.
    this.refresh = answer.refresh;
    this.key = crypto.randomUUID();
    this.access = answer.access;
    this.renewAt = Date.now() + (answer.expires_in - 60) * 1000;
  }
}

const session = await Session.signIn(base, email, password);
const baseURL = `${base}/v1/llm`;

const openai = new OpenAI({ baseURL, apiKey: session.token });

const chain = new ChatOpenAI({ model: "stand-in-small", apiKey: session.token, configuration: { baseURL } });

const compatible = createOpenAICompatible({ name: "shell", baseURL, fetch: session.fetch });

const anthropic = new Anthropic({ baseURL, apiKey: session.token });
