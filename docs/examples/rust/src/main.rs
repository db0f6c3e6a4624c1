//! A session of a shell: BASE_URL, EMAIL, PASSWORD and VERSION in the environment say where, who and what.

mod shell;

use std::env::var;
use std::sync::{Arc, Mutex};

use semver::Version;
use serde_json::json;
use shell::{Failure, Kept, Shell};

#[tokio::main]
async fn main() {
    match session().await {
        Ok(()) => (),
        Err(Failure::Refused { code, detail, .. }) => {
            eprintln!("{code}: {detail}");
            std::process::exit(1);
        }
        Err(Failure::Unreachable(error)) => {
            eprintln!("The service cannot be reached: {error}");
            std::process::exit(1);
        }
    }
}

async fn session() -> Result<(), Failure> {
    let base_url = var("BASE_URL").unwrap_or_else(|_| "http://127.0.0.1:8000".into());
    let keychain: Arc<Mutex<Option<Kept>>> = Arc::default();
    let written = keychain.clone();
    let shell = Shell::new(&base_url, None, move |kept| *written.lock().unwrap() = kept.cloned())?;

    sign_in(&shell).await?;
    let first = shell.licence().await?;
    println!("licence: {}", first["status"].as_str().unwrap_or_default());

    if let Some(text) = first["message"]["text"].as_str() {
        println!("{}: {text}", first["message"]["level"].as_str().unwrap_or("info"));
    }
    let mine = Version::parse(&var("VERSION").unwrap_or_else(|_| "1.0.0".into()));
    let least = Version::parse(first["minimum_version"].as_str().unwrap_or("0.0.0"));
    if let (Ok(mine), Ok(least)) = (mine, least) {
        if mine < least {
            // The update screen alone.
            println!("update: {mine} must become {least} or newer");
            return Ok(());
        }
    }

    let before = keychain.lock().unwrap().clone();
    shell.renew().await?;
    let renewed = *keychain.lock().unwrap() != before;
    println!("renewed: {renewed}, unchanged: {}", shell.licence().await? == first);

    print!("answer: ");
    let messages = json!([{ "role": "user", "content": "Say hello." }]);
    shell.ask(&json!({ "messages": messages, "max_tokens": 50 }), |piece| print!("{piece}")).await?;
    println!();

    let usage = shell.usage().await?;
    println!("usage: {} in, {} out", usage["input"]["used"], usage["output"]["used"]);

    let taken = shell.report("session_shown", json!({ "model": { "streamed": true } })).await?;
    println!("telemetry: {} accepted", taken["accepted"]);

    shell.log_out().await?;
    println!("signed out: {}", keychain.lock().unwrap().is_none());
    Ok(())
}

/// Signs in. With no device free a shell lists them, and its person chooses one: here by its name in SIGN_OUT.
async fn sign_in<K: Fn(Option<&Kept>)>(shell: &Shell<K>) -> Result<(), Failure> {
    let (email, password) = (var("EMAIL").unwrap_or_default(), var("PASSWORD").unwrap_or_default());
    let refused = match shell.sign_in(&email, &password, None).await {
        Ok(()) => return Ok(()),
        Err(refused) => refused,
    };
    if let Failure::Refused { devices, .. } = &refused {
        for each in devices {
            let shown = |name: &str| each[name].as_str().unwrap_or_default();
            println!("device: {}, last used {}", shown("device"), shown("last_used_at"));
        }
        let wanted = var("SIGN_OUT").ok();
        if let Some(chosen) = devices.iter().find(|each| wanted.is_some() && each["device"].as_str() == wanted.as_deref()) {
            return shell.sign_in(&email, &password, chosen["id"].as_str()).await;
        }
    }
    Err(refused)
}
