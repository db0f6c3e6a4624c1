// A shell's side of the API, by a client whose types are generated from the schema: `npm run types`.
import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "./schema.js";

export type Schemas = components["schemas"];
export type Licence = Schemas["LicenceStatus"];
/** A device that the person is signed in on, as `device_limit_reached` lists them. */
export type Device = NonNullable<Schemas["DeviceLimitReachedProblem"]["devices"]>[number];

/** What outlives the process. Keep it in the system's keychain, and write it before `keep` returns. */
export interface Kept {
  refresh: string;
  /** The key of a refresh whose answer has not been read yet. */
  pending?: string;
}

/** A problem that the service answered; `problem.code` says which. */
export class Refused extends Error {
  constructor(readonly problem: { code: string; detail: string; devices?: Device[] }) {
    super(problem.detail);
  }
}

/** Compares SemVer versions without their build metadata, pre-releases before their release. */
export function isBelow(version: string, minimum: string): boolean {
  const [mine, least] = [version, minimum].map((each) => {
    const [core = "", ...pre] = each.split("+")[0]!.split("-");
    return { numbers: core.split(".").map(Number), pre: pre.join("-") };
  });
  for (const place of [0, 1, 2]) {
    const difference = mine!.numbers[place]! - least!.numbers[place]!;
    if (difference !== 0) return difference < 0;
  }
  if (!mine!.pre || !least!.pre) return mine!.pre !== "" && least!.pre === "";
  return mine!.pre.localeCompare(least!.pre, "en", { numeric: true }) < 0;
}

const MARGIN_SECONDS = 60;
const PAUSES_MS = [200, 1_000, 5_000];
const OPEN = ["/v1/auth/login", "/v1/auth/refresh", "/v1/auth/logout"];

export class Shell {
  private readonly api;
  private access = "";
  private ends = 0;
  private refreshing: Promise<void> | undefined;
  private known: { etag: string; licence: Licence } | undefined;

  constructor(
    baseUrl: string,
    private kept: Kept | undefined,
    private readonly keep: (kept: Kept | undefined) => Promise<void>,
  ) {
    this.api = createClient<paths>({ baseUrl });
    const signed: Middleware = {
      onRequest: async ({ request, schemaPath }) => {
        if (OPEN.includes(schemaPath)) return;
        request.headers.set("Authorization", `Bearer ${await this.token()}`);
      },
    };
    this.api.use(signed);
  }

  /** After `device_limit_reached`, `end_session` is the `id` of the device to sign out for this one. */
  async signIn(email: string, password: string, end_session: string | null = null): Promise<void> {
    const { data, error } = await this.api.POST("/v1/auth/login", { body: { email, password, end_session } });
    if (error) throw new Refused(error);
    await this.take(data);
  }

  /** The access token, renewed a minute before its end; also a key for SDKs that take a function. */
  async token(): Promise<string> {
    if (Date.now() / 1000 > this.ends - MARGIN_SECONDS) await this.renew();
    return this.access;
  }

  /** One refresh at a time: a refresh token is good for one use. */
  renew(): Promise<void> {
    this.refreshing ??= this.refresh().finally(() => (this.refreshing = undefined));
    return this.refreshing;
  }

  /** The licence; costs the service nearly nothing while it stays the same. */
  async licence(): Promise<Licence> {
    const known = this.known;
    const header = known ? { "If-None-Match": known.etag } : {};
    const { data, error, response } = await this.api.GET("/v1/license/status", { params: { header } });
    if (response.status === 304 && known) return known.licence;
    if (!data) throw new Refused(error ?? unreadable);
    this.known = { etag: response.headers.get("ETag") ?? "", licence: data };
    return data;
  }

  /** Streams an answer; stop early by leaving the loop. */
  async *ask(body: Omit<Schemas["ChatRequest"], "stream">): AsyncGenerator<Schemas["ChatCompletionChunk"]> {
    const { data, error } = await this.api.POST("/v1/llm/stream", { body, parseAs: "stream" });
    if (error) throw new Refused(error);
    if (!data) return;
    for await (const text of events(data)) {
      if (text === "[DONE]") return;
      const event = JSON.parse(text) as Schemas["ChatCompletionChunk"] | Schemas["StreamError"];
      if ("error" in event) throw new Refused({ code: event.error.code, detail: event.error.message });
      yield event;
    }
    throw new Refused({ code: "provider_error", detail: "The answer ended too early." });
  }

  async usage(): Promise<Schemas["Usage"]> {
    const { data, error } = await this.api.GET("/v1/usage/me");
    if (error) throw new Refused(error);
    return data;
  }

  /** Send the same events again after a failure: those that are stored already count as duplicates. */
  async report(name: string, properties: Record<string, unknown>): Promise<Schemas["Taken"]> {
    const event = { id: crypto.randomUUID(), name, occurred_at: new Date().toISOString(), properties };
    const { data, error } = await this.api.POST("/v1/telemetry", { body: { events: [event] } });
    if (error) throw new Refused(error);
    return data;
  }

  async logOut(): Promise<void> {
    if (this.kept) await this.api.POST("/v1/auth/logout", { body: { refresh: this.kept.refresh } });
    await this.forget();
  }

  /** With the same key, the service answers a repeated refresh with the same successor, for a day. */
  private async refresh(): Promise<void> {
    if (!this.kept) throw new Refused({ code: "not_authenticated", detail: "Please sign in." });
    const { refresh, pending = crypto.randomUUID() } = this.kept;
    this.kept = { refresh, pending };
    await this.keep(this.kept);
    const call = { params: { header: { "Idempotency-Key": pending } }, body: { refresh } };
    for (let attempt = 0; ; attempt += 1) {
      const answer = await this.api.POST("/v1/auth/refresh", call).catch((lost: unknown) => ({ lost }));
      if ("data" in answer && answer.data) return this.take(answer.data);
      const problem = "error" in answer ? answer.error : undefined;
      if (problem && problem.status < 500 && problem.status !== 429) {
        if (problem.code === "invalid_refresh_token") await this.forget();
        throw new Refused(problem);
      }
      const pause = PAUSES_MS[attempt];
      if (pause === undefined) throw new Refused(problem ?? unreadable);
      await new Promise((resume) => setTimeout(resume, pause));
    }
  }

  private async take(pair: Schemas["TokenPair"]): Promise<void> {
    this.kept = { refresh: pair.refresh };
    await this.keep(this.kept);
    this.access = pair.access;
    this.ends = Date.now() / 1000 + pair.expires_in;
  }

  private async forget(): Promise<void> {
    this.kept = this.known = undefined;
    this.access = "";
    this.ends = 0;
    await this.keep(undefined);
  }
}

const unreadable = { code: "service_unavailable", detail: "The service cannot be reached at the moment." };

/** The data of each server-sent event: one line. Comments, which keep a silent stream alive, are lines of their own. */
async function* events(stream: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  // WebKit's streams cannot be iterated over.
  const reader = stream.getReader();
  let waiting = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      waiting += decoder.decode(value, { stream: true });
      const lines = waiting.split("\n");
      waiting = lines.pop() ?? "";
      for (const line of lines) if (line.startsWith("data: ")) yield line.slice(6);
    }
  } finally {
    await reader.cancel();
  }
}
