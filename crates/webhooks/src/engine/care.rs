//! What the engine writes into the records of endpoints: that they fail, recovered, or are
//! disabled. One change of a record at a time, in order.

use super::{Asker, Engine};
use crate::health::Remark;
use crate::lane::Wish;
use model::record::Fields;
use model::schema::Builtin;
use model::webhook::pattern::FAILING;
use model::write::{Cause, Change, Precondition, Write};
use serde_json::{Value, json};

const DISABLED: &str = "webhook_endpoint.disabled";

impl Engine {
    pub(super) fn remark(&mut self, number: i64, remark: Option<Remark>) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let wish = match remark {
            None => return,
            Some(Remark::Disabled { since }) => {
                self.disable(number, format!("failing since {}", since.to_iso()));
                return;
            }
            Some(Remark::Failing(since)) => {
                lane.failing_since = Some(since);
                let fields = fields(json!({ "failing_since": since.to_iso() }));
                Wish { fields, event: None }
            }
            Some(Remark::Recovered) => {
                lane.failing_since = None;
                let fields = fields(json!({ "failing_since": null, "disabled_reason": null }));
                Wish { fields, event: None }
            }
            Some(Remark::Warned { number, of, since, end }) => {
                // The same words after a restart, so that nobody is warned twice.
                let (since, end) = (since.to_iso(), end.to_iso());
                let text = format!("failing since {since}; warning {number} of {of}, ends {end}");
                Wish { fields: fields(json!({ "disabled_reason": text })), event: Some(FAILING) }
            }
        };
        lane.wishes.push_back(wish);
        self.grant(number);
    }

    /// No more is sent to it from now on; its record follows.
    pub(super) fn disable(&mut self, number: i64, reason: String) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        if !lane.enabled {
            return;
        }
        lane.enable(false);
        let fields = fields(json!({ "status": "disabled", "disabled_reason": reason }));
        lane.wishes.push_back(Wish { fields, event: Some(DISABLED) });
        self.grant(number);
        self.touch(number);
    }

    /// Puts the lane in line for writing its record.
    fn grant(&mut self, number: i64) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        if lane.wishes.is_empty() || std::mem::replace(&mut lane.wishing, true) {
            return;
        }
        self.changes.push(lane.account(), Asker::Lane(number));
    }

    /// Writes records, account by account, a few at a time.
    pub(super) fn serve_changes(&mut self) {
        while self.changing < self.limits.changes {
            let Some((asker, ())) = self.changes.pop_with(|_, _| Some(())) else { return };
            match asker {
                Asker::Lane(number) => self.write_endpoint(number),
                Asker::Replay(number) => self.write_replay(number),
            }
        }
    }

    fn write_endpoint(&mut self, number: i64) {
        let Some(lane) = self.lanes.get_mut(&number) else { return };
        let Some(wish) = lane.wishes.front() else { return };
        self.changing += 1;
        let write = Write {
            scope: lane.endpoint.scope,
            collection: self.schema.own(Builtin::Endpoint),
            id: Some(lane.endpoint.id.clone()),
            parent: None,
            change: Change::Assign {
                fields: wish.fields.clone(),
                event: wish.event.map(str::to_owned),
            },
            view: None,
            precondition: Precondition::None,
            idempotency: None,
            cause: Cause::default(),
            now: self.clock.wall,
            entropy: self.ids.entropy(),
        };
        self.chores.wish(number, write);
    }

    pub(super) fn wished(&mut self, number: i64) {
        self.changing -= 1;
        if let Some(lane) = self.lanes.get_mut(&number) {
            lane.wishing = false;
            lane.wishes.pop_front();
            self.grant(number);
        }
    }
}

pub(super) fn fields(value: Value) -> Fields {
    match value {
        Value::Object(fields) => fields,
        _ => Fields::new(),
    }
}
