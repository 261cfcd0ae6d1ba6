//! Loads and writes of the commit pipeline: the needs of a whole batch are loaded in one round
//! trip, and its effects are written at the end, together with COMMIT.

use super::backend::send;
use super::connect::{Cells, Client, Step};
use super::idempotency::{self, Asked};
use super::param::{Param, params};
use super::read::{self, Key};
use super::session::Session;
use super::shared::Shared;
use super::write::{self, Changes};
use super::{cluster, erasure, shortened, views};
use crate::Error;
use crate::commit::{Claim, Dependent, Dependents, Effect, Facts, Limit, Needs, Rows, Written};
use crate::idempotency::NewRow;
use model::record::Scalar;
use model::write::LeaseNumber;
use model::{CollectionIx, Record, Scope};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Row;

/// Writes that are loaded at once.
const BATCH: usize = 256;

const TOMBSTONES: &str = "SELECT q.place FROM unnest($1::text[], $2::text[], $3::bigint[], \
    $4::bigint[]) q(id, collection, scope, place) JOIN tombstones t ON t.id = q.id AND \
    t.collection = q.collection AND t.scope = q.scope";

pub struct PostgresRows<'a> {
    pub session: &'a Session,
    pub shared: &'a Shared,
    pub unsent: &'a RefCell<Vec<Step>>,
}

/// Keys of records that are looked up together, each with the place of the one who asks.
#[derive(Default)]
struct Named<'n> {
    texts: Vec<&'n str>,
    numbers: Vec<i64>,
    scopes: Vec<i64>,
    places: Vec<i64>,
}

impl<'n> Named<'n> {
    fn add(&mut self, key: Option<Key<'n>>, scope: Scope, place: usize) {
        match key {
            Some(Key::Text(text)) => self.texts.push(text),
            Some(Key::Number(number)) => self.numbers.push(number),
            // No record can have this id.
            None => return,
        }
        self.scopes.push(scope.0);
        self.places.push(place as i64);
    }

    fn step(self, sql: &str, feed: bool) -> Step {
        let keys = if feed { Param::from(self.numbers) } else { Param::from(self.texts) };
        Step::new(sql.to_owned(), &[keys, self.scopes.into(), self.places.into()])
    }
}

/// What a question of a batch is about.
enum About {
    Responses,
    Records(CollectionIx),
    Deliveries,
    Tombstones,
    /// Parents and references that exist, by the numbers of `Wanted`.
    Existing,
    /// Holders of unique values: the write and the claim, by the numbers of their list.
    Holders(Vec<(usize, usize)>),
    Count(usize),
    Events(usize),
    Leases,
}

/// Something that must exist: the parent of a write, or one of its references.
enum Wanted {
    Parent(usize),
    Reference(usize, usize),
}

/// The place of a write, the number of one of its claims, and that claim.
type Claimed<'n> = (usize, usize, &'n Claim);

/// The questions of a batch.
#[derive(Default)]
struct Questions<'n> {
    asked: Vec<Asked>,
    wanted: Vec<Wanted>,
    steps: Vec<Step>,
    about: Vec<About>,
    records: BTreeMap<CollectionIx, Named<'n>>,
    deliveries: BTreeMap<CollectionIx, Named<'n>>,
    existing: BTreeMap<CollectionIx, Named<'n>>,
    /// By collection and field.
    holders: BTreeMap<(CollectionIx, usize), Vec<Claimed<'n>>>,
    buried: Vec<(&'n str, CollectionIx, Scope, usize)>,
    leases: BTreeSet<i64>,
}

impl<'n> Questions<'n> {
    fn of(shared: &Shared, needs: &'n [Needs<'n>]) -> Questions<'n> {
        let mut all = Questions::default();
        for (place, needs) in needs.iter().enumerate() {
            all.add(shared, place, needs);
        }
        all.gather(shared);
        all
    }

    fn ask(&mut self, about: About, step: Step) {
        self.about.push(about);
        self.steps.push(step);
    }

    fn add(&mut self, shared: &Shared, place: usize, needs: &'n Needs<'n>) {
        let Needs { scope, collection, .. } = *needs;
        self.leases.extend(needs.lease.map(|lease| lease.bucket));
        if let Some(key) = needs.key {
            self.asked.push(Asked { scope, key, place });
        }
        if let Some(id) = needs.record {
            let table = &shared.tables[collection];
            let records = if needs.delivery { &mut self.deliveries } else { &mut self.records };
            records.entry(collection).or_default().add(read::key(table, id), scope, place);
            if needs.tombstone {
                self.buried.push((id, collection, scope, place));
            }
        }
        if needs.delivery {
            return;
        }
        if let (Some(above), Some(id)) = (needs.parent_in, needs.parent) {
            self.want(shared, Wanted::Parent(place), above, scope, id);
        }
        for (n, reference) in needs.references.iter().enumerate() {
            let wanted = Wanted::Reference(place, n);
            self.want(shared, wanted, reference.collection, scope, &reference.id);
        }
        for (n, claim) in needs.claims.iter().enumerate() {
            let key = (claim.collection, claim.field);
            self.holders.entry(key).or_default().push((place, n, claim));
        }
        if let Some(limit) = needs.limit {
            self.ask(About::Count(place), count(shared, scope, collection, limit));
        }
        if let Some((resource, after)) = needs.events_about {
            let values = params![scope.0, resource, after, i64::MAX];
            self.ask(About::Events(place), Step::new(erasure::COUNT, values));
        }
    }

    fn want(
        &mut self,
        shared: &Shared,
        wanted: Wanted,
        ix: CollectionIx,
        scope: Scope,
        id: &'n str,
    ) {
        let number = self.wanted.len();
        self.wanted.push(wanted);
        let key = read::key(&shared.tables[ix], id);
        self.existing.entry(ix).or_default().add(key, scope, number);
    }

    /// One statement for each table.
    fn gather(&mut self, shared: &Shared) {
        if !self.asked.is_empty() {
            self.ask(About::Responses, idempotency::question(&self.asked));
        }
        for (ix, named) in std::mem::take(&mut self.records) {
            let table = &shared.tables[ix];
            self.ask(About::Records(ix), named.step(&table.load, table.feed));
        }
        for (ix, named) in std::mem::take(&mut self.deliveries) {
            self.ask(About::Deliveries, named.step(&shared.tables[ix].load, false));
        }
        for (ix, named) in std::mem::take(&mut self.existing) {
            let table = &shared.tables[ix];
            self.ask(About::Existing, named.step(&table.existing, table.feed));
        }
        for ((ix, field), claims) in std::mem::take(&mut self.holders) {
            let values = claims.iter().map(|(.., claim)| *claim);
            let Some(step) = holders(shared, (ix, field), values) else { continue };
            let who = claims.iter().map(|(place, n, _)| (*place, *n)).collect();
            self.ask(About::Holders(who), step);
        }
        if !self.leases.is_empty() {
            let buckets: Vec<i64> = std::mem::take(&mut self.leases).into_iter().collect();
            self.ask(About::Leases, Step::new(cluster::CHECK, params![buckets]));
        }
        if !self.buried.is_empty() {
            let name = |ix: CollectionIx| shared.schema.collections[ix].name.as_str();
            let values = params![
                self.buried.iter().map(|one| one.0).collect::<Vec<&str>>(),
                self.buried.iter().map(|one| name(one.1)).collect::<Vec<&str>>(),
                self.buried.iter().map(|one| one.2.0).collect::<Vec<i64>>(),
                self.buried.iter().map(|one| one.3 as i64).collect::<Vec<i64>>(),
            ];
            let step = Step::new(TOMBSTONES, values);
            self.ask(About::Tombstones, step);
        }
    }
}

fn count(shared: &Shared, scope: Scope, ix: CollectionIx, limit: &Limit) -> Step {
    let mut only = match limit.statuses {
        [] => String::new(),
        statuses => format!(" AND f_status IN ('{}')", statuses.join("', '")),
    };
    if let Some(field) = limit.null {
        only.push_str(&format!(" AND ({} ->> '{field}') IS NULL", erasure::json!("body")));
    }
    let table = &shared.tables[ix].name;
    let sql =
        format!("SELECT count(*) FROM (SELECT 1 FROM {table} WHERE scope = $1{only} LIMIT $2) t");
    Step::new(sql, params![scope.0, limit.most])
}

/// Who has these values of one field; each with the place of its claim.
fn holders<'c>(
    shared: &Shared,
    (ix, field): (CollectionIx, usize),
    claims: impl Iterator<Item = &'c Claim> + Clone,
) -> Option<Step> {
    let table = &shared.tables[ix];
    let column = table.columns.iter().find(|column| column.place == field)?;
    let (name, kind) = (format!("t.{}", column.name), write::array_type(column.kind));
    let (name, value): (String, fn(&Scalar) -> Scalar) = match column.shortens {
        true => (shortened::sql(&name), shortened::of),
        false => (name, Scalar::clone),
    };
    let sql = format!(
        "SELECT q.place, t.n FROM unnest($1::{kind}, $2::bigint[], $3::bigint[]) \
         q(value, scope, place) JOIN {} t ON t.scope = q.scope AND {name} = q.value",
        table.name
    );
    let values: Vec<Scalar> = claims.clone().map(|claim| value(&claim.value)).collect();
    let scopes: Vec<i64> = claims.map(|claim| claim.scope.0).collect();
    let places: Vec<i64> = (0..values.len() as i64).collect();
    let values = write::array(column.kind, values.iter());
    Some(Step::new(sql, &[values, scopes.into(), places.into()]))
}

fn place_of(row: &Row, at: usize) -> Result<usize, Error> {
    Ok(usize::try_from(row.cell::<i64>(at)?).unwrap_or(usize::MAX))
}

/// Puts the answers where they belong.
async fn answer(
    client: &Client,
    shared: &Shared,
    needs: &[Needs<'_>],
    questions: Questions<'_>,
) -> Result<Vec<Facts>, Error> {
    let mut all: Vec<Facts> = needs
        .iter()
        .map(|needs| Facts {
            parent_exists: needs.parent_in.is_none(),
            missing: needs.references.clone(),
            holders: vec![None; needs.claims.len()],
            ..Facts::default()
        })
        .collect();
    let mut found = vec![false; questions.wanted.len()];
    let answers = client.query_all(&questions.steps).await?;
    for (about, rows) in questions.about.iter().zip(answers) {
        match about {
            About::Responses => {
                for (place, stored) in idempotency::answers(client, &questions.asked, &rows).await?
                {
                    all[place].stored = Some(stored);
                }
            }
            About::Records(ix) => records(shared, *ix, needs, &rows, &mut all)?,
            About::Deliveries => {
                for row in &rows {
                    let at = row.columns().len() - 1;
                    all[place_of(row, at)?].delivery = Some(views::delivery_of(row)?);
                }
            }
            About::Tombstones => {
                for row in &rows {
                    all[place_of(row, 0)?].was_deleted = true;
                }
            }
            About::Existing => {
                for row in &rows {
                    found[place_of(row, 0)?] = true;
                }
            }
            About::Holders(who) => {
                for row in &rows {
                    let (place, n) = who[place_of(row, 0)?];
                    all[place].holders[n] = Some(row.cell(1)?);
                }
            }
            About::Leases => {
                let current =
                    |row: &Row| Ok(LeaseNumber { bucket: row.cell(0)?, fence: row.cell(1)? });
                let current: BTreeSet<LeaseNumber> =
                    rows.iter().map(current).collect::<Result<_, Error>>()?;
                for (needs, facts) in needs.iter().zip(&mut all) {
                    facts.lease_lost = needs.lease.is_some_and(|lease| !current.contains(&lease));
                }
            }
            About::Count(place) => all[*place].count = first(&rows)?,
            About::Events(place) => all[*place].events_about = first(&rows)?,
        }
    }
    for (wanted, found) in questions.wanted.iter().zip(found) {
        if let (Wanted::Parent(place), true) = (wanted, found) {
            all[*place].parent_exists = true;
        }
        if let (Wanted::Reference(place, n), true) = (wanted, found) {
            let named = &needs[*place].references[*n];
            all[*place].missing.retain(|one| one != named);
        }
    }
    for facts in &mut all {
        facts.was_deleted &= facts.current.is_none();
    }
    Ok(all)
}

fn first(rows: &[Row]) -> Result<i64, Error> {
    rows.first().map_or(Ok(0), |row| row.cell(0))
}

fn records(
    shared: &Shared,
    ix: CollectionIx,
    needs: &[Needs<'_>],
    rows: &[Row],
    all: &mut [Facts],
) -> Result<(), Error> {
    let (table, collection) = (&shared.tables[ix], &shared.schema.collections[ix]);
    for row in rows {
        let place = place_of(row, table.width + 1)?;
        let parent: Option<&str> = row.cell(table.width)?;
        // A child is found below its parent alone.
        if !table.child || needs[place].parent.is_some() && needs[place].parent == parent {
            all[place].current = Some(read::record_of(row, table, collection)?);
        }
    }
    Ok(())
}

impl PostgresRows<'_> {
    fn client(&self) -> Result<&Client, Error> {
        send(self.session, self.unsent)?;
        self.session.client()
    }

    /// Stored responses as they are written: a large text that an earlier row has is shared.
    fn shortened(&self, rows: &[&NewRow]) -> Result<Vec<NewRow>, Error> {
        let mut short = Vec::with_capacity(rows.len());
        for row in rows {
            let shares = idempotency::is_large_update(row) && {
                let client = self.session.client()?;
                self.session.run(idempotency::may_share(client, row))?
            };
            let NewRow { scope, digest, fingerprint, created, kind, seq, number, updated, .. } =
                **row;
            let kept = |text: &Option<String>| text.clone().filter(|_| !shares);
            short.push(NewRow {
                scope,
                digest,
                fingerprint,
                created,
                kind,
                seq,
                number,
                updated,
                record: row.record.clone(),
                text: kept(&row.text),
                request: row.request.clone(),
                api_version: kept(&row.api_version),
                hidden: kept(&row.hidden),
            });
        }
        Ok(short)
    }
}

impl Rows for PostgresRows<'_> {
    fn batch(&self) -> usize {
        BATCH
    }

    fn load(&mut self, needs: &[Needs<'_>]) -> Result<Vec<Facts>, Error> {
        let client = self.client()?;
        let questions = Questions::of(self.shared, needs);
        self.session.run(answer(client, self.shared, needs, questions))
    }

    fn exist(&mut self, scope: Scope, named: &[(CollectionIx, &str)]) -> Result<Vec<bool>, Error> {
        let mut keys: BTreeMap<CollectionIx, Named<'_>> = BTreeMap::new();
        for (place, (ix, id)) in named.iter().enumerate() {
            let key = read::key(&self.shared.tables[*ix], id);
            keys.entry(*ix).or_default().add(key, scope, place);
        }
        let step = |(ix, named): (CollectionIx, Named<'_>)| {
            let table = &self.shared.tables[ix];
            named.step(&table.existing, table.feed)
        };
        let steps: Vec<Step> = keys.into_iter().map(step).collect();
        let client = self.client()?;
        let mut found = vec![false; named.len()];
        for row in self.session.run(client.query_all(&steps))?.iter().flatten() {
            found[place_of(row, 0)?] = true;
        }
        Ok(found)
    }

    fn holders(&mut self, claims: &[Claim]) -> Result<Vec<Option<i64>>, Error> {
        let (mut steps, mut who) = (Vec::new(), Vec::new());
        for (n, claim) in claims.iter().enumerate() {
            let field = (claim.collection, claim.field);
            if let Some(step) = holders(self.shared, field, std::iter::once(claim)) {
                steps.push(step);
                who.push(n);
            }
        }
        let client = self.client()?;
        let mut found = vec![None; claims.len()];
        for (n, rows) in who.into_iter().zip(self.session.run(client.query_all(&steps))?) {
            found[n] = rows.first().map(|row| row.cell(1)).transpose()?;
        }
        Ok(found)
    }

    fn dependents(&mut self, wanted: &Dependents<'_>) -> Result<Vec<Dependent>, Error> {
        let client = self.client()?;
        self.session.run(read::dependents(client, self.shared, wanted))
    }

    fn record(
        &mut self,
        scope: Scope,
        collection: CollectionIx,
        id: &str,
    ) -> Result<Option<Record>, Error> {
        let client = self.client()?;
        self.session.run(read::record(client, self.shared, scope, collection, None, id))
    }

    fn write(&mut self, effects: &[Effect]) -> Result<Written, Error> {
        let changes = Changes::of(self.shared, effects);
        let remembered = self.shortened(changes.remembered())?;
        if effects.iter().any(|effect| matches!(effect, Effect::Erase { .. })) {
            self.shared.note_erasure();
        }
        self.unsent.borrow_mut().extend(changes.steps(self.shared, &remembered));
        Ok(Written::Done)
    }
}
