//! Bringing what the log and remembered answers tell to a version that is still known, when the
//! schema file lets the one go that they were written under: only the file that was served before
//! knows how. Inside the transaction that opens the database.

use super::idempotency;
use crate::Error;
use model::Schema;
use model::version::{Versions, View};
use rusqlite::{Connection, params};
use std::sync::Arc;

/// Rows read at a time.
const PAGE: i64 = 1_000;

/// Tells everything anew that was written under a date that `now` lacks.
pub fn log(connection: &Connection, before: Schema, now: &Versions) -> Result<(), Error> {
    let before = Versions::new(&Arc::new(before));
    let target = target(&before, now);
    for view in before.iter().filter(|view| now.find(&view.date).is_none()) {
        let events = events(connection, &before, &view.date, target)?;
        let answers = idempotency::retell(connection, &before, &view.date, target)?;
        if events + answers > 0 {
            let (from, to) = (&view.date, target.1);
            tracing::info!(%from, %to, events, answers, "told anew: the version is gone");
        }
    }
    Ok(())
}

/// The version whose shapes are told, as the old file knows it, and what it is called now.
pub type Target<'v> = (&'v View, &'v str);

/// The newest there was; where that is gone, too, the one that is the newest again. Where the old
/// file does not know that one, the newest is taken for it.
fn target<'v>(before: &'v Versions, now: &'v Versions) -> Target<'v> {
    let (newest, date) = (before.newest(), &now.newest().date);
    match (now.find(&newest.date), before.find(date)) {
        (Some(_), _) => (newest, &newest.date),
        (None, Some(again)) => (again, date),
        (None, None) => (newest, date),
    }
}

fn events(
    connection: &Connection,
    before: &Versions,
    date: &str,
    (to, told_as): Target<'_>,
) -> Result<usize, Error> {
    let mut select = connection.prepare(
        "SELECT seq, collection, object, previous, hidden FROM log \
         WHERE seq > ?1 AND api_version = ?2 ORDER BY seq LIMIT ?3",
    )?;
    let mut update = connection.prepare(
        "UPDATE log SET api_version = ?2, object = ?3, previous = ?4, hidden = ?5 WHERE seq = ?1",
    )?;
    let (mut last, mut count) = (0, 0);
    loop {
        let rows = select.query_map(params![last, date, PAGE], |row| {
            let texts: (String, Option<String>, Option<String>) =
                (row.get(2)?, row.get(3)?, row.get(4)?);
            Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?, texts))
        })?;
        let page = rows.collect::<Result<Vec<_>, _>>()?;
        let Some((newest, ..)) = page.last() else { return Ok(count) };
        last = *newest;
        count += page.len();
        for (seq, collection, texts) in page {
            let (object, previous, hidden) = &texts;
            let told = (object.as_str(), previous.as_deref(), hidden.as_deref());
            let retold = before.converted(&collection, date, told, to);
            let (object, previous, hidden) = retold.unwrap_or(texts);
            update.execute(params![seq, told_as, object, previous, hidden])?;
        }
    }
}
