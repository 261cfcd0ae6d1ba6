//! What work that outlives its request takes along: the parts of a context that the rest of an
//! action needs once its write is made. Headers, query and body are not among them.

use super::Context;
use crate::Outside;
use crate::actions::Actions;
use crate::error::Shape;
use crate::in_flight::InFlight;
use crate::route::Target;
use crate::version::Versioning;
use http::{HeaderMap, Method};
use model::caller::Caller;
use model::schema::Schema;
use model::version::View;
use model::write::Idempotency;
use std::net::IpAddr;
use std::sync::Arc;
use store::Store;

pub struct Owned {
    schema: Arc<Schema>,
    version: Arc<View>,
    versions: Arc<Versioning>,
    store: Arc<dyn Store>,
    outside: Arc<dyn Outside>,
    outgoing: wire::Client,
    in_flight: Arc<InFlight>,
    actions: Arc<Actions>,
    cursor_key: [u8; 32],
    caller: Caller,
    target: Target,
    method: Method,
    path: String,
    headers: HeaderMap,
    request_id: String,
    client: IpAddr,
    error_shape: Shape,
    idempotency: Option<Idempotency>,
}

impl Owned {
    pub fn of(context: &Context<'_>) -> Owned {
        Owned {
            schema: context.schema.clone(),
            version: context.version.clone(),
            versions: context.versions.clone(),
            store: context.store.clone(),
            outside: context.outside.clone(),
            outgoing: context.outgoing.clone(),
            in_flight: context.in_flight.clone(),
            actions: context.actions.clone(),
            cursor_key: *context.cursor_key,
            caller: context.caller.clone(),
            target: context.target.clone(),
            method: context.method.clone(),
            path: context.path.to_owned(),
            headers: HeaderMap::new(),
            request_id: context.request_id.to_owned(),
            client: context.client,
            error_shape: context.error_shape,
            idempotency: context.idempotency.cloned(),
        }
    }

    pub fn context(&self) -> Context<'_> {
        Context {
            schema: &self.schema,
            version: &self.version,
            versions: &self.versions,
            store: &self.store,
            outside: &self.outside,
            outgoing: &self.outgoing,
            in_flight: &self.in_flight,
            actions: &self.actions,
            cursor_key: &self.cursor_key,
            caller: &self.caller,
            target: &self.target,
            method: &self.method,
            path: &self.path,
            query: "",
            headers: &self.headers,
            request_id: &self.request_id,
            client: self.client,
            error_shape: self.error_shape,
            body: &[],
            idempotency: self.idempotency.as_ref(),
        }
    }
}
