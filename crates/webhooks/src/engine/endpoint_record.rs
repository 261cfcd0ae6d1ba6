//! Changes of endpoint records by the engine: failing, recovered, disabled. One change of a record
//! at a time, in order.

use super::{Engine, Requester};
use crate::health::HealthNotice;
use crate::queue::RecordChange;
use model::record::Fields;
use model::schema::Builtin;
use model::webhook::pattern::FAILING;
use model::write::{Change, Precondition, Write};
use serde_json::{Value, json};

const DISABLED: &str = "webhook_endpoint.disabled";

impl Engine {
    pub(super) fn remark(&mut self, number: i64, remark: Option<HealthNotice>) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        let change = match remark {
            None => return,
            Some(HealthNotice::Disabled { since }) => {
                self.disable(number, format!("failing since {}", since.to_iso()));
                return;
            }
            Some(HealthNotice::Failing(since)) => {
                queue.condition.failing_since = Some(since);
                let fields = fields(json!({ "failing_since": since.to_iso() }));
                RecordChange { fields, event: None }
            }
            Some(HealthNotice::Recovered) => {
                queue.condition.failing_since = None;
                let fields = fields(json!({ "failing_since": null, "disabled_reason": null }));
                RecordChange { fields, event: None }
            }
            Some(HealthNotice::Warned { number, of, since, end }) => {
                // The text is the same after a restart, so that the owner is not warned twice.
                let (since, end) = (since.to_iso(), end.to_iso());
                let text = format!("failing since {since}; warning {number} of {of}, ends {end}");
                RecordChange {
                    fields: fields(json!({ "disabled_reason": text })),
                    event: Some(FAILING),
                }
            }
        };
        queue.condition.changes.push_back(change);
        self.queue_change(number);
    }

    /// Stops sending to the endpoint at once; its record follows.
    pub(super) fn disable(&mut self, number: i64, reason: String) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        if !queue.enabled {
            return;
        }
        queue.enable(false);
        let fields = fields(json!({ "status": "disabled", "disabled_reason": reason }));
        queue.condition.changes.push_back(RecordChange { fields, event: Some(DISABLED) });
        self.queue_change(number);
        self.touch(number);
    }

    /// Puts the queue in line for writing its record.
    fn queue_change(&mut self, number: i64) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        if queue.condition.changes.is_empty()
            || std::mem::replace(&mut queue.condition.changing, true)
        {
            return;
        }
        self.changes.push(queue.account(), Requester::Queue(number));
    }

    /// Writes records, account by account, a few at a time.
    pub(super) fn serve_changes(&mut self) {
        while self.changing < self.limits.changes {
            let Some((requester, ())) = self.changes.pop_with(|_, _| Some(())) else { return };
            match requester {
                Requester::Queue(number) => self.write_endpoint(number),
                Requester::Replay(number) => self.write_replay(number),
            }
        }
    }

    fn write_endpoint(&mut self, number: i64) {
        let Some(queue) = self.queues.get_mut(&number) else { return };
        let Some(change) = queue.condition.changes.front() else { return };
        self.changing += 1;
        let write = Write {
            scope: queue.endpoint.scope,
            collection: self.schema.own(Builtin::Endpoint),
            id: Some(queue.endpoint.id.clone()),
            parent: None,
            change: Change::Assign {
                fields: change.fields.clone(),
                event: change.event.map(str::to_owned),
            },
            view: None,
            precondition: Precondition::None,
            idempotency: None,
            cause: self.buckets.cause(queue.endpoint.scope),
            now: self.clock.wall,
            entropy: self.ids.entropy(),
        };
        let opened = queue.opened;
        self.tasks.change_record(number, opened, write);
    }

    pub(super) fn record_changed(&mut self, number: i64, opened: u64) {
        self.changing -= 1;
        let queue = self.queues.get_mut(&number);
        if let Some(queue) = queue.filter(|queue| queue.opened == opened) {
            queue.condition.changing = false;
            queue.condition.changes.pop_front();
            self.queue_change(number);
        }
    }
}

pub(super) fn fields(value: Value) -> Fields {
    match value {
        Value::Object(fields) => fields,
        _ => Fields::new(),
    }
}
