//! The messages of a client over a socket, and the replies: JSON objects with a `type`.

use super::{Pending, Posted, Socket};
use crate::ask::{self, SubscribeRequest, invalid};
use crate::bounds::MAX_ID_BYTES;
use crate::entry::Ephemeral;
use crate::hub::Hub;
use crate::interest::{Interest, Interests};
use crate::kind::{Kind, TYPING};
use crate::permission;
use bytes::Bytes;
use model::problem::{Code, Problem};
use model::record::push_json;
use model::schema::{Collection, CollectionIx, Schema};
use model::value;
use serde_json::{Map, Value, json};
use wire::websocket;

/// The largest ephemeral message that is relayed.
const MAX_EPHEMERAL_BYTES: usize = 1024;
const MAX_REF_CHARS: usize = 128;

/// The first message: where the connection stands, before anything happened.
pub fn welcome(hub: &Hub, cursor: i64) -> Bytes {
    let position = hub.codec.epoch.at(cursor);
    websocket::text(&format!("{{\"type\":\"welcome\",\"position\":\"{position}\"}}"))
}

/// A record was made. No position: messages from before it may still be on their way.
pub fn posted(reference: Option<&str>, posted: &Posted) -> Bytes {
    let mut ack = json!({ "type": "ack", "ref": reference, "id": posted.seq });
    if posted.replayed {
        ack["replayed"] = true.into();
    }
    websocket::text(&ack.to_string())
}

pub fn error(reference: Option<&str>, explained: &str) -> Bytes {
    let mut out = String::from("{\"type\":\"error\",\"ref\":");
    push_json(&mut out, &reference.map_or(Value::Null, |text| text.into()));
    out.push_str(",\"error\":");
    out.push_str(explained);
    out.push('}');
    websocket::text(&out)
}

impl Socket {
    /// Does what a message asks for, and replies.
    pub(super) fn take(&mut self, text: &str) {
        let mut message = match read(text) {
            Ok(message) => message,
            Err(problem) => return self.refuse(None, &problem),
        };
        let reference = match reference(message.remove("ref")) {
            Ok(reference) => reference,
            Err(problem) => return self.refuse(None, &problem),
        };
        let kind = match message.remove("type") {
            Some(Value::String(kind)) => kind,
            _ => {
                let message = "A message needs a `type`, which is a text.";
                let problem = Problem::new(Code::Required, message).param("type");
                return self.refuse(reference.as_deref(), &problem);
            }
        };
        if let Err(problem) = self.act(&kind, message, reference.clone()) {
            self.refuse(reference.as_deref(), &problem);
        }
    }

    fn act(
        &mut self,
        kind: &str,
        message: Map<String, Value>,
        reference: Option<String>,
    ) -> Result<(), Problem> {
        match kind {
            TYPING => self.relay(message),
            "subscribe" => self.subscribe(&message, reference),
            "unsubscribe" => self.unsubscribe(&message, reference.as_deref()),
            "ping" => {
                no_more(&message, &[])?;
                self.subscription.replies.push_back(websocket::text("{\"type\":\"pong\"}"));
                Ok(())
            }
            name => match self.feed(name) {
                Some(feed) => self.post(feed, name, message, reference),
                None => Err(self.unknown(name)),
            },
        }
    }

    fn feed(&self, name: &str) -> Option<CollectionIx> {
        let named = |c: &Collection| c.feed.as_ref().is_some_and(|feed| feed.live_name == name);
        self.schema().collections.iter().position(|c| !c.removed && named(c))
    }

    /// The schema as the connection's version has it.
    fn schema(&self) -> &Schema {
        let codec = &self.subscription.ticket.hub.codec;
        let view = codec.versions.get(self.subscription.interests.version);
        view.map_or(&codec.schema, |view| &view.schema)
    }

    fn unknown(&self, kind: &str) -> Problem {
        let known = self.schema().collections.iter().filter(|collection| !collection.removed);
        let feeds = known.filter_map(|c| Some(c.feed.as_ref()?.live_name.as_str()));
        let known: Vec<&str> =
            [TYPING, "subscribe", "unsubscribe", "ping"].into_iter().chain(feeds).collect();
        let shown: String = kind.chars().take(100).collect();
        let message = format!("There is no message `{shown}`; there are: {}.", known.join(", "));
        Problem::new(Code::InvalidParameter, message).param("type").value(shown)
    }

    /// Its fields are in `data`, or next to `type`.
    fn post(
        &mut self,
        feed: CollectionIx,
        name: &str,
        mut message: Map<String, Value>,
        reference: Option<String>,
    ) -> Result<(), Problem> {
        if !self.feeds.contains(name) {
            let message = format!("These credentials may not send `{name}`.");
            return Err(Problem::new(Code::PermissionDenied, message));
        }
        let data = match message.remove("data") {
            Some(data) => {
                no_more(&message, &["data"])?;
                data
            }
            None => Value::Object(message),
        };
        let posting = self.writer.post(feed, data.to_string().into(), reference.clone());
        self.pending = Some(Box::new(Pending::Post(posting, reference)));
        Ok(())
    }

    fn relay(&mut self, mut message: Map<String, Value>) -> Result<(), Problem> {
        if self.feeds == crate::ask::Feeds::Only(Vec::new()) {
            let message = "These credentials may only listen.";
            return Err(Problem::new(Code::PermissionDenied, message));
        }
        let about = match message.remove("resource") {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) if (1..=MAX_ID_BYTES).contains(&id.len()) => Some(id),
            Some(other) => {
                let message = "`resource` must be the id of a record.";
                return Err(invalid("resource", &other.to_string(), message));
            }
        };
        if !self.permit.permits_about(about.as_deref()) {
            let message =
                "These credentials are limited to some records: name one of them as `resource`.";
            return Err(Problem::new(Code::PermissionDenied, message).param("resource"));
        }
        let mut members = String::from("\"user\":");
        push_json(&mut members, &self.user.as_deref().map_or(Value::Null, |user| user.into()));
        if let Some(id) = &about {
            members.push_str(",\"resource\":");
            push_json(&mut members, &id.as_str().into());
        }
        let data = match message.remove("data") {
            Some(data) => {
                no_more(&message, &["resource", "data"])?;
                data
            }
            None => Value::Object(message),
        };
        members.push_str(",\"data\":");
        push_json(&mut members, &data);
        if members.len() > MAX_EPHEMERAL_BYTES {
            let message = format!("What is relayed has at most {MAX_EPHEMERAL_BYTES} bytes.");
            return Err(Problem::new(Code::TooLong, message).param("data"));
        }
        let from = Some(self.subscription.slot.number());
        let ephemeral = Ephemeral::new(self.scope, Kind::Typing, from, members);
        self.subscription.ticket.hub.publish(ephemeral.about(about));
        Ok(())
    }

    fn subscribe(
        &mut self,
        message: &Map<String, Value>,
        reference: Option<String>,
    ) -> Result<(), Problem> {
        let asked = self.asked(message)?;
        let hub = &self.subscription.ticket.hub;
        permission::check(&self.permit, self.schema(), &hub.codec.schema, &asked.interest)?;
        self.check_room(&asked.interest)?;
        let newest = *hub.store.0.position().borrow();
        if asked.is_ahead_of(newest) {
            let store = hub.store.0.clone();
            // If it fails, the position is unknown here, and the client learns that.
            let fresh = Box::pin(async move { drop(store.fresh().await) });
            self.pending = Some(Box::new(Pending::Subscribe(fresh, asked, reference)));
        } else {
            self.begin_subscription(asked, reference.as_deref());
        }
        Ok(())
    }

    fn check_room(&self, interest: &Interest) -> Result<(), Problem> {
        let wanted = self.subscription.interests.wanted.iter();
        let others = wanted.filter(|(one, _)| self.subscribed && one != interest).count();
        let most = self.subscription.ticket.hub.limits.max_subscriptions;
        if others >= most {
            let message = format!("A connection has at most {most} subscriptions.");
            return Err(Problem::new(Code::TooManyRecords, message));
        }
        Ok(())
    }

    pub(super) fn begin_subscription(&mut self, asked: SubscribeRequest, reference: Option<&str>) {
        let newest = *self.subscription.ticket.hub.store.0.position().borrow();
        let begin = asked.begin(newest);
        // The cursor of a parked connection may be far back. Events from before that it did not
        // want are not sent now, unless `since` asks for them.
        let (here, from) = (self.subscription.cursor, begin.cursor);
        let mut wanted = Vec::new();
        if self.subscribed {
            let others = self.subscription.interests.wanted.iter();
            let others = others.filter(|(one, _)| *one != asked.interest).cloned();
            // The other subscriptions must not receive the events in between again.
            wanted.extend(others.map(|(one, since)| (one, since.max(here))));
        }
        self.writer.subscribed(&asked.interest.types);
        let cursor = if wanted.is_empty() { from } else { from.min(here) };
        wanted.push((asked.interest, from));
        self.subscribed = true;
        self.follow(wanted, cursor);
        self.acknowledge(reference, from);
        if let Some((gap, requested)) = begin.gap {
            self.subscription.lost(gap, requested, from);
        }
    }

    fn unsubscribe(
        &mut self,
        message: &Map<String, Value>,
        reference: Option<&str>,
    ) -> Result<(), Problem> {
        let asked = self.asked(message)?;
        let mut wanted = self.subscription.interests.wanted.clone();
        if asked.interest == Interest::default() {
            wanted.clear();
        }
        wanted.retain(|(one, _)| *one != asked.interest);
        self.subscribed = true;
        let here = self.subscription.cursor;
        self.follow(wanted, here);
        self.acknowledge(reference, here);
        Ok(())
    }

    fn follow(&mut self, wanted: Vec<(Interest, i64)>, cursor: i64) {
        let version = self.subscription.interests.version;
        let permit = self.permit.clone();
        self.subscription.follow(Interests::new(self.scope, permit, version, wanted), cursor);
    }

    fn acknowledge(&mut self, reference: Option<&str>, position: i64) {
        let position = self.subscription.ticket.hub.codec.epoch.at(position).to_string();
        let ack = json!({ "type": "ack", "ref": reference, "position": position });
        self.subscription.replies.push_back(websocket::text(&ack.to_string()));
    }

    fn asked(&self, message: &Map<String, Value>) -> Result<SubscribeRequest, Problem> {
        let codec = &self.subscription.ticket.hub.codec;
        let mut asked = SubscribeRequest::default();
        for (name, value) in message {
            match (name.as_str(), value) {
                ("types" | "resource" | "parent" | "since", Value::Null) => {}
                ("types", Value::String(text)) => {
                    asked.interest.types = ask::types(self.schema(), "types", text.split(','))?;
                }
                ("types", Value::Array(all)) if all.iter().all(Value::is_string) => {
                    let all = all.iter().filter_map(Value::as_str);
                    asked.interest.types = ask::types(self.schema(), "types", all)?;
                }
                ("resource", Value::String(id)) => {
                    asked.interest.resource = Some(ask::text("resource", id)?);
                }
                ("parent", Value::String(id)) => {
                    asked.interest.parent = Some(ask::text("parent", id)?);
                }
                ("since", Value::String(text)) => {
                    asked.since = Some(ask::place(codec.epoch, "since", text)?);
                }
                ("since", Value::Number(number)) => {
                    asked.since = Some(ask::place(codec.epoch, "since", &number.to_string())?);
                }
                ("types" | "resource" | "parent" | "since", value) => {
                    let message = format!("`{name}` has the wrong JSON type.");
                    return Err(invalid(name, &value.to_string(), message));
                }
                (name, _) => {
                    return Err(unknown(name, &["types", "resource", "parent", "since"]));
                }
            }
        }
        Ok(asked)
    }

    fn refuse(&mut self, reference: Option<&str>, problem: &Problem) {
        let answer = self.error(reference, problem);
        self.subscription.replies.push_back(answer);
    }
}

/// The members of a message, each of them once.
fn read(text: &str) -> Result<Map<String, Value>, Problem> {
    match value::parse(text.as_bytes()) {
        Ok(Value::Object(message)) => Ok(message),
        Ok(_) => {
            let message = "A message is a JSON object with a `type`.";
            Err(Problem::new(Code::BodyNotObject, message))
        }
        Err(mut problem) => {
            // The reader's message is about bodies.
            problem.message = problem.message.replacen("The body", "The message", 1);
            Err(problem)
        }
    }
}

/// Refuses members that would be ignored.
fn no_more(message: &Map<String, Value>, known: &[&str]) -> Result<(), Problem> {
    message.keys().next().map_or(Ok(()), |name| Err(unknown(name, known)))
}

fn unknown(name: &str, known: &[&str]) -> Problem {
    let shown: String = name.chars().take(100).collect();
    let known = ["type", "ref"].iter().chain(known).copied().collect::<Vec<_>>().join(", ");
    let message = format!("There is no member `{shown}` here; there are: {known}.");
    Problem::new(Code::UnknownField, message).param(shown)
}

fn reference(value: Option<Value>) -> Result<Option<String>, Problem> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if (1..=MAX_REF_CHARS).contains(&text.chars().count()) => {
            Ok(Some(text))
        }
        Some(_) => {
            let message = format!("`ref` must be a text of 1 to {MAX_REF_CHARS} characters.");
            Err(Problem::new(Code::InvalidFormat, message).param("ref"))
        }
    }
}
