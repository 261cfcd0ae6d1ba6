//! Random schemas with random histories, through every interface, in every version: every response
//! is compared with a reference model of the changes, which shares no code with the server.
//!
//! `shape` and `change` model one version and one change, `history` a whole chain, `generate`
//! creates the schema files. `records`, `actions`, `lists`, `expand`, `refusals`, `told` and
//! `contract` are the interfaces. A failure names its seed; `RESTIVE_CHAIN_SEED=7` runs that one
//! alone, and `RESTIVE_CHAINS=200` that many instead of a few.

mod actions;
mod change;
mod contract;
mod expand;
mod generate;
mod history;
mod lists;
mod records;
mod refusals;
mod shape;
mod told;

use self::contract::Contract;
use self::history::{Collection, Plan};
use self::shape::{Fields, Kind};
use crate::chance::Chance;
use crate::harness::{Answer, Ask, Server, Start};
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Minimum number of schemas per run.
const CHAINS: usize = 10;

#[test]
fn every_interface_of_random_schemas_serves_every_version_as_declared() {
    let setting = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match (setting("RESTIVE_CHAIN_SEED"), setting("RESTIVE_CHAINS")) {
        (Some(seed), _) => vec![seed],
        (None, Some(count)) => (0..count).collect(),
        (None, None) => always(),
    };
    for seed in seeds {
        let plan = generate::plan(seed);
        let named = Named { seed, schema: plan.text() };
        World::new(&plan, seed, &named.schema).run();
    }
}

/// Number of seeds from which the fixed ones are chosen.
const CHOICE: u64 = 400;

/// Seeds whose histories together have every feature, those with most features for their size
/// first.
fn always() -> Vec<u64> {
    let plans = (0..CHOICE).map(|seed| (seed, generate::plan(seed)));
    // The cost of a run grows with the square: every version reads what each of them writes.
    let size = |plan: &Plan| plan.dates.len().pow(2) * plan.collections.len();
    let mut all: Vec<(u64, usize, BTreeSet<String>)> =
        plans.map(|(seed, plan)| (seed, size(&plan), plan.traits())).collect();
    let mut chosen = Vec::new();
    while all.iter().any(|(.., rest)| !rest.is_empty()) || chosen.len() < CHAINS {
        let worth = |at: usize| 1_000 * all[at].2.len() / all[at].1;
        let most = (0..all.len()).max_by_key(|&at| (worth(at), Reverse(at))).unwrap();
        let (seed, _, covered) = all.remove(most);
        chosen.push(seed);
        for (_, _, rest) in &mut all {
            rest.retain(|one| !covered.contains(one));
        }
    }
    chosen
}

/// Every kind of change happens to a feed, which is polled, streamed and sent over sockets, and to
/// a collection with event envelopes.
#[test]
fn the_fixed_random_histories_contain_every_kind_of_change() {
    let kinds = "Rename Enter Leave Retype EnumMap Default Optional Required Removed \
                 Limits Gone CollectionAdded CollectionRemoved";
    let of_forms = "Rename Retype EnumMap Default Optional Required \
                    Limits";
    let has: BTreeSet<String> =
        always().into_iter().flat_map(|seed| generate::plan(seed).traits()).collect();
    for (what, kinds) in [("feed", kinds), ("records", kinds), ("form", of_forms)] {
        for kind in kinds.split_whitespace() {
            assert!(has.contains(&format!("{what} {kind}")), "{what} {kind}: {has:#?}");
        }
    }
    for one in ["mounts", "children", "unseen", "records Code", "records beside", "feed beside"] {
        assert!(has.contains(one), "{one}: {has:#?}");
    }
}

/// Prints how to repeat a failure.
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

/// A server, and the data that it must have.
struct World<'p> {
    plan: &'p Plan,
    server: Server,
    contracts: Vec<Contract>,
    chance: Chance,
    records: Vec<Kept>,
    /// The events so far, in order.
    log: Vec<Happened>,
}

/// A record.
#[derive(Clone)]
struct Kept {
    /// Index in the plan.
    collection: usize,
    /// In the newest shape, including hidden fields.
    fields: Fields,
    /// Fields that the service assigned.
    assigned: Fields,
    /// The path of the parent record, below the mount; empty without a parent.
    home: String,
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
                self.expand(version, collection);
            }
            self.miss_the_mount(version);
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
        let ask = self.request(version, method, path);
        match body {
            Some(body) => ask.json(&Value::Object(body.clone())).send(),
            None => ask.send(),
        }
    }

    /// A request that is not sent yet. Paths are below the mount of the version.
    fn request(&self, version: usize, method: &str, path: &str) -> Ask<'_> {
        let path = format!("{}{path}", self.plan.mount(version));
        self.server.ask(method, &path).version(self.plan.dates[version])
    }

    /// A body of a create or PUT that the version accepts.
    fn body(&mut self, version: usize, collection: usize) -> Fields {
        let mut body = self.collection(collection).shapes[version].body(&mut self.chance);
        self.refer(version, collection, &mut body);
        self.say_otherwise(version, collection, &mut body);
        body
    }

    /// Sends some fields under an old name that still works, additionally or instead.
    fn say_otherwise(&mut self, version: usize, collection: usize, body: &mut Fields) {
        for (name, new) in self.collection(collection).shapes[version].aliases() {
            let Some(value) = body.get(new).cloned() else { continue };
            match self.chance.below(3) {
                0 => {}
                1 => drop(body.insert(name.clone(), value)),
                _ => {
                    body.remove(new);
                    body.insert(name.clone(), value);
                }
            }
        }
    }

    /// Sets references to existing records.
    fn refer(&mut self, version: usize, collection: usize, body: &mut Fields) {
        let targets: Vec<&Kept> = self.records.iter().filter(|kept| kept.collection == 0).collect();
        for field in self.collection(collection).shapes[version].visible() {
            let sent = body.get_mut(&field.name).filter(|_| field.kind == Kind::Ref);
            if let Some(value) = sent.filter(|_| !targets.is_empty() && self.chance.percent(80)) {
                *value = targets[self.chance.below(targets.len())].assigned["id"].clone();
            }
        }
    }

    /// The response of a version for a record.
    fn shown(&self, version: usize, kept: &Kept) -> Value {
        let mut shown = self.collection(kept.collection).shown(version, &kept.fields);
        shown.extend(kept.assigned.clone());
        Value::Object(shown)
    }

    /// The path of a record, below the mount.
    fn path(&self, kept: &Kept) -> String {
        let list = format!("{}/{}", kept.home, self.collection(kept.collection).name);
        match &kept.assigned["id"] {
            Value::String(id) => format!("{list}/{id}"),
            number => format!("{list}/{number}"),
        }
    }

    /// The possible parents of a collection's records.
    fn owners(&self, collection: usize) -> Vec<&Kept> {
        let parent = self.collection(collection).parent;
        self.records.iter().filter(|kept| Some(kept.collection) == parent).collect()
    }

    /// The path of the first possible parent of a collection's records.
    fn home(&self, collection: usize) -> String {
        self.owners(collection).first().map_or(String::new(), |owner| self.path(owner))
    }

    /// The path of their list.
    fn list_path(&self, collection: usize) -> String {
        format!("{}/{}", self.home(collection), self.collection(collection).name)
    }

    /// The fields that the service assigned to a shown record.
    fn assigned(&self, collection: usize, shown: &Value) -> Fields {
        let parent = self.collection(collection).parent;
        let owner = parent.map(|parent| self.collection(parent).object);
        let names = ASSIGNED.into_iter().chain(owner);
        let known = |name: &str| shown.get(name).map(|value| (name.to_owned(), value.clone()));
        names.filter_map(known).collect()
    }

    /// A description for messages.
    fn about(&self, version: usize, collection: usize) -> String {
        format!("{} in {}", self.collection(collection).name, self.plan.dates[version])
    }
}
