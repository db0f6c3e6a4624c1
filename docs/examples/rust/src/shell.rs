//! A shell's side of the API. In a Tauri shell this is the core's: keep one `Shell` as managed state, have commands call
//! it, and send the pieces of `ask` to the webview by a channel, so that no token ever reaches the webview.

use std::time::{Duration, Instant};

use reqwest::{header, Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::{json, Value};
use tokio::sync::Mutex;
use uuid::Uuid;

const MARGIN: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSES_MS: [u64; 3] = [200, 1_000, 5_000];

/// What outlives the process: keep it in the system's keychain.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub refresh: String,
    /// The key of a refresh whose answer has not been read yet.
    pub pending: Option<String>,
}

/// A problem that the service answered, by its code, or a network that failed.
#[derive(Debug)]
pub enum Failure {
    /// `devices` has those that `device_limit_reached` lists: `id`, `device`, `last_used_at`.
    Refused { code: String, detail: String, devices: Vec<Value> },
    Unreachable(reqwest::Error),
}

impl From<reqwest::Error> for Failure {
    fn from(error: reqwest::Error) -> Self {
        Failure::Unreachable(error)
    }
}

struct Tokens {
    access: String,
    ends: Instant,
    kept: Option<Kept>,
}

pub struct Shell<K: Fn(Option<&Kept>)> {
    base_url: String,
    http: Client,
    /// Held during a refresh: a refresh token is good for one use.
    tokens: Mutex<Tokens>,
    licence: Mutex<Option<(String, Value)>>,
    keep: K,
}

impl<K: Fn(Option<&Kept>)> Shell<K> {
    /// `keep` returns once it has written.
    pub fn new(base_url: &str, kept: Option<Kept>, keep: K) -> Result<Self, Failure> {
        let http = Client::builder().connect_timeout(Duration::from_secs(5)).build()?;
        let tokens = Tokens { access: String::new(), ends: Instant::now(), kept };
        let (tokens, licence) = (Mutex::new(tokens), Mutex::new(None));
        Ok(Shell { base_url: base_url.into(), http, tokens, licence, keep })
    }

    /// After `device_limit_reached`, `end_session` is the `id` of the device to sign out for this one.
    pub async fn sign_in(&self, email: &str, password: &str, end_session: Option<&str>) -> Result<(), Failure> {
        let body = json!({ "email": email, "password": password, "end_session": end_session });
        let pair = read(self.at(Method::POST, "/v1/auth/login").json(&body).timeout(PATIENCE).send().await?).await?;
        self.take(&mut *self.tokens.lock().await, &pair);
        Ok(())
    }

    /// The access token, renewed a minute before its end.
    pub async fn token(&self) -> Result<String, Failure> {
        let mut tokens = self.tokens.lock().await;
        if Instant::now() + MARGIN > tokens.ends {
            self.refresh(&mut tokens).await?;
        }
        Ok(tokens.access.clone())
    }

    /// Renews the token before its time, as after the machine has slept.
    pub async fn renew(&self) -> Result<(), Failure> {
        self.refresh(&mut *self.tokens.lock().await).await
    }

    /// The licence; costs the service nearly nothing while it stays the same.
    pub async fn licence(&self) -> Result<Value, Failure> {
        let mut known = self.licence.lock().await;
        let mut call = self.call(Method::GET, "/v1/license/status").await?.timeout(PATIENCE);
        if let Some((etag, _)) = &*known {
            call = call.header(header::IF_NONE_MATCH, etag);
        }
        let response = call.send().await?;
        if let (StatusCode::NOT_MODIFIED, Some((_, licence))) = (response.status(), &*known) {
            return Ok(licence.clone());
        }
        let etag = response.headers().get(header::ETAG).and_then(|etag| etag.to_str().ok());
        let etag = etag.unwrap_or_default().to_owned();
        let licence = read(response).await?;
        *known = Some((etag, licence.clone()));
        Ok(licence)
    }

    /// Streams an answer's text to `say`; dropping the future stops it.
    pub async fn ask(&self, body: &Value, mut say: impl FnMut(&str)) -> Result<(), Failure> {
        let mut response = self.call(Method::POST, "/v1/llm/stream").await?.json(body).send().await?;
        if response.status() != StatusCode::OK {
            return read(response).await.map(|_| ());
        }
        let mut waiting: Vec<u8> = Vec::new();
        while let Some(bytes) = response.chunk().await? {
            waiting.extend_from_slice(&bytes);
            while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
                let line = waiting.drain(..=end).collect::<Vec<u8>>();
                // Other lines are comments, which keep a silent stream alive, and ends of events.
                let Some(data) = line.strip_prefix(b"data: ") else { continue };
                let data = data.strip_suffix(b"\n").unwrap_or(data);
                if data == b"[DONE]" {
                    return Ok(());
                }
                let event: Value = serde_json::from_slice(data).map_err(|_| broken())?;
                if let Some(error) = event.get("error") {
                    return Err(refused(error, "message"));
                }
                say(event["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
            }
        }
        Err(broken())
    }

    pub async fn usage(&self) -> Result<Value, Failure> {
        read(self.call(Method::GET, "/v1/usage/me").await?.timeout(PATIENCE).send().await?).await
    }

    /// Send the same events again after a failure: those that are stored already count as duplicates.
    pub async fn report(&self, name: &str, properties: Value) -> Result<Value, Failure> {
        let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let event = json!({ "id": Uuid::new_v4().to_string(), "name": name, "occurred_at": now, "properties": properties });
        let call = self.call(Method::POST, "/v1/telemetry").await?.json(&json!({ "events": [event] }));
        read(call.timeout(PATIENCE).send().await?).await
    }

    pub async fn log_out(&self) -> Result<(), Failure> {
        let mut tokens = self.tokens.lock().await;
        if let Some(kept) = &tokens.kept {
            let body = json!({ "refresh": kept.refresh });
            self.at(Method::POST, "/v1/auth/logout").json(&body).timeout(PATIENCE).send().await?;
        }
        self.forget(&mut tokens);
        *self.licence.lock().await = None;
        Ok(())
    }

    /// With the same key, the service answers a repeated refresh with the same successor, for a day.
    async fn refresh(&self, tokens: &mut Tokens) -> Result<(), Failure> {
        let Some(kept) = &mut tokens.kept else {
            return Err(failure("not_authenticated", "Please sign in."));
        };
        let key = kept.pending.get_or_insert_with(|| Uuid::new_v4().to_string()).clone();
        // Before the call: a process that dies here goes on with this key when it starts again.
        (self.keep)(Some(kept));
        let body = json!({ "refresh": kept.refresh });
        let mut pauses = PAUSES_MS.iter();
        loop {
            let call = self.at(Method::POST, "/v1/auth/refresh").header("Idempotency-Key", &key).json(&body);
            let answer = match call.timeout(PATIENCE).send().await {
                Ok(response) => {
                    let is_final = !response.status().is_server_error()
                        && response.status() != StatusCode::TOO_MANY_REQUESTS;
                    (is_final, read(response).await)
                }
                Err(lost) => (false, Err(lost.into())),
            };
            match (answer, pauses.next()) {
                ((_, Ok(pair)), _) => {
                    self.take(tokens, &pair);
                    return Ok(());
                }
                ((false, Err(_)), Some(pause)) => tokio::time::sleep(Duration::from_millis(*pause)).await,
                ((_, Err(failure)), _) => {
                    if matches!(&failure, Failure::Refused { code, .. } if code == "invalid_refresh_token") {
                        self.forget(tokens);
                    }
                    return Err(failure);
                }
            }
        }
    }

    fn at(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{path}", self.base_url))
    }

    async fn call(&self, method: Method, path: &str) -> Result<RequestBuilder, Failure> {
        Ok(self.at(method, path).bearer_auth(self.token().await?))
    }

    fn take(&self, tokens: &mut Tokens, pair: &Value) {
        let seconds = pair["expires_in"].as_u64().unwrap_or_default();
        tokens.access = pair["access"].as_str().unwrap_or_default().to_owned();
        tokens.ends = Instant::now() + Duration::from_secs(seconds);
        let refresh = pair["refresh"].as_str().unwrap_or_default().to_owned();
        tokens.kept = Some(Kept { refresh, pending: None });
        (self.keep)(tokens.kept.as_ref());
    }

    fn forget(&self, tokens: &mut Tokens) {
        *tokens = Tokens { access: String::new(), ends: Instant::now(), kept: None };
        (self.keep)(None);
    }
}

/// The body of an answer, or its problem.
async fn read(response: Response) -> Result<Value, Failure> {
    let status = response.status();
    if status == StatusCode::NO_CONTENT {
        return Ok(Value::Null);
    }
    let body: Value = response.json().await?;
    if status.is_success() { Ok(body) } else { Err(refused(&body, "detail")) }
}

fn refused(problem: &Value, words: &str) -> Failure {
    let text = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
    let devices = problem["devices"].as_array().cloned().unwrap_or_default();
    Failure::Refused { code: text("code"), detail: text(words), devices }
}

fn broken() -> Failure {
    failure("provider_error", "The answer ended too early.")
}

fn failure(code: &str, detail: &str) -> Failure {
    Failure::Refused { code: code.into(), detail: detail.into(), devices: Vec::new() }
}
