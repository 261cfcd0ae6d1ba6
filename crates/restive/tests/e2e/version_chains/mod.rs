//! Random schemas with random pasts, through every door, in every version: whatever the server
//! says is held against a straightforward model of the changes, which shares nothing with it.
//!
//! `shape` and `change` are the model of one version and of one change, `history` that of a whole
//! chain, `generate` makes the schema files. `records`, `lists`, `refusals`, `told` and
//! `contract` are the doors. A failure names its seed; `RESTIVE_CHAIN_SEED=7` runs that one alone,
//! and `RESTIVE_CHAINS=200` so many instead of a few.

mod change;
mod contract;
mod generate;
mod history;
mod lists;
mod records;
mod refusals;
mod shape;
mod told;

use self::contract::Contract;
use self::history::{Collection, Plan};
use self::shape::Fields;
use crate::chance::Chance;
use crate::harness::{Answer, Server, Start};
use serde_json::Value;

/// As many as take some ten seconds beside other tests.
const CHAINS: u64 = 10;

#[test]
fn every_door_tells_every_version_of_random_schemas_what_the_changes_say() {
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match setting("RESTIVE_CHAIN_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..setting("RESTIVE_CHAINS").unwrap_or(CHAINS),
    };
    for seed in seeds {
        let plan = generate::plan(seed);
        let named = Named { seed, schema: plan.text() };
        World::new(&plan, seed, &named.schema).run();
    }
}

/// Says how to repeat a failure.
struct Named {
    seed: u64,
    schema: String,
}

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("RESTIVE_CHAIN_SEED={} fails, with this schema:\n{}", self.seed, self.schema);
        }
    }
}

/// A server, and what it must be keeping.
struct World<'p> {
    plan: &'p Plan,
    server: Server,
    contracts: Vec<Contract>,
    chance: Chance,
    records: Vec<Kept>,
    /// What has happened, in order.
    log: Vec<Happened>,
}

/// A record.
#[derive(Clone)]
struct Kept {
    /// Place in the plan.
    collection: usize,
    /// In the newest shape, with what that does not show.
    fields: Fields,
    /// What the service assigned.
    assigned: Fields,
}

/// An event.
struct Happened {
    kind: String,
    before: Option<Fields>,
    after: Kept,
}

const ASSIGNED: [&str; 4] = ["id", "object", "created_at", "updated_at"];

impl<'p> World<'p> {
    fn new(plan: &'p Plan, seed: u64, schema: &str) -> World<'p> {
        let server = Start::schema(schema).go();
        let contracts = World::contracts(&server, &plan.dates);
        let chance = Chance::new(!seed);
        World { plan, server, contracts, chance, records: Vec::new(), log: Vec::new() }
    }

    fn run(mut self) {
        let mut listeners = self.listen();
        for version in 0..self.plan.dates.len() {
            for collection in 0..self.plan.collections.len() {
                self.write(version, collection);
                self.refuse(version, collection);
            }
        }
        for version in 0..self.plan.dates.len() {
            for collection in 0..self.plan.collections.len() {
                self.list(version, collection);
            }
            self.read_by_pin(version);
            self.poll(version);
        }
        self.delete_one();
        self.compare_log(&mut listeners);
    }

    fn collection(&self, place: usize) -> &'p Collection {
        &self.plan.collections[place]
    }

    /// A request in a version.
    fn ask(&self, version: usize, method: &str, path: &str, body: Option<&Fields>) -> Answer {
        let ask = self.server.ask(method, path).version(self.plan.dates[version]);
        match body {
            Some(body) => ask.json(&Value::Object(body.clone())).send(),
            None => ask.send(),
        }
    }

    /// What a version answers for a record.
    fn shown(&self, version: usize, kept: &Kept) -> Value {
        let mut shown = self.collection(kept.collection).shown(version, &kept.fields);
        shown.extend(kept.assigned.clone());
        Value::Object(shown)
    }

    fn path(&self, kept: &Kept) -> String {
        let name = self.collection(kept.collection).name;
        match &kept.assigned["id"] {
            Value::String(id) => format!("/v1/{name}/{id}"),
            number => format!("/v1/{name}/{number}"),
        }
    }

    /// For messages.
    fn about(&self, version: usize, collection: usize) -> String {
        format!("{} in {}", self.collection(collection).name, self.plan.dates[version])
    }
}

/// What the service assigned to a record that it shows.
fn assigned(shown: &Value) -> Fields {
    let known = |name: &&str| shown.get(*name).map(|value| ((*name).to_owned(), value.clone()));
    ASSIGNED.iter().filter_map(known).collect()
}
