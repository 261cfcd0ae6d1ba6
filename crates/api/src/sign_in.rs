//! `POST /console/login`: exchanges the printed token for a key, so that the console opens without
//! a key to copy.

use crate::body;
use crate::error::Failure;
use crate::keys::{self, Keyring, NewKey};
use crate::negotiate;
use crate::respond::{self, Reply};
use crate::route;
use crate::services::Services;
use crate::trace::Trace;
use http::{Method, StatusCode};
use model::Timestamp;
use model::problem::{Code, Problem};
use model::schema::{Field, Kind};
use model::validate;
use serde_json::{Value, json};
use wire::Exchange;

const METHODS: [&str; 2] = ["POST", "OPTIONS"];
/// How long the key of the console is valid: a working day.
const KEY_HOURS: i64 = 12;
/// Characters of a token that is sent: more than the printed one has.
const MAX_CHARS: usize = 100;
/// Bytes of the body, which has one token.
const MAX_BODY_BYTES: usize = 1_024;

pub async fn serve(
    services: &Services,
    exchange: &mut Exchange,
    trace: &mut Trace,
) -> Result<Reply, Failure> {
    // Guesses use up the quota of their address.
    services.admission.take_for_address(exchange, trace)?;
    if exchange.method == Method::OPTIONS {
        return Ok(respond::options(&METHODS));
    }
    if !METHODS.contains(&exchange.method.as_str()) {
        return Err(respond::not_allowed(&exchange.method, &METHODS).into());
    }
    route::refuse_parameters(exchange.uri.query().unwrap_or_default())?;
    negotiate::check_content_type(&exchange.method, &exchange.headers)?;
    let sent = services.bodies.read_anonymous(exchange, MAX_BODY_BYTES, trace).await?;
    let mut field = Field::new("token", Kind::String);
    (field.required, field.max_length, field.write_only) = (true, Some(MAX_CHARS), true);
    let fields = validate::params(&[field], body::object(&sent, false)?)?;
    let token = fields.get("token").and_then(Value::as_str).unwrap_or_default();
    let Some(state) = services.login.take(token, services.outside.uptime()) else {
        let message = "The login token is wrong, was used or has expired. Restart the server for a \
                       new one, or enter a key: restive keys create --admin.";
        return Err(Problem::new(Code::InvalidApiKey, message).param("token").into());
    };
    match make_key(services).await {
        Ok(body) => Ok(respond::no_store(Reply::json(StatusCode::CREATED, body.to_string()))),
        Err(failure) => {
            services.login.give_back(state);
            Err(failure)
        }
    }
}

/// A key of the first account, in test mode, with everything that the console shows.
async fn make_key(services: &Services) -> Result<Value, Failure> {
    let failed = |error: keys::Error| match error {
        keys::Error::Store(error) => Failure::Store(error),
        keys::Error::Refused(message) => Problem::new(Code::Internal, message).into(),
    };
    let (schema, store) = (&*services.schema, &*services.store);
    let keyring = Keyring { schema, store, outside: &*services.outside };
    let account = keyring.first_account().await.map_err(failed)?.ok_or_else(|| {
        Problem::new(Code::NotFound, "There is no account yet: restive accounts create.")
    })?;
    let end = services.outside.now().0.saturating_add(KEY_HOURS * 3_600_000);
    let expires_at = Timestamp(end).to_iso();
    let new = NewKey {
        name: Some("console".to_owned()),
        admin: true,
        expires_at: Some(expires_at.clone()),
        ..NewKey::default()
    };
    let made = keyring.create_key(&account, false, new).await.map_err(failed)?;
    Ok(json!({
        "object": "key",
        "id": made.record.id,
        "secret": made.secret,
        "expires_at": expires_at,
    }))
}
