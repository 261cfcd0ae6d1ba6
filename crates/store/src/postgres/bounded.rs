//! Rows with texts of any size: the database ends them where enough bytes are read, so that the
//! rest neither crosses the network nor takes memory here. It adds up the texts as they are stored;
//! their reader, who knows what they become, may ask for more.

use super::connect::{Cells, Client};
use super::param::Param;
use crate::Error;
use tokio_postgres::Row;

/// Where rows end.
#[derive(Clone, Copy)]
pub enum End {
    /// With the row that reaches the size.
    At,
    /// One row later, which shows that there are more.
    After,
}

/// The first rows of a statement that selects these texts: as many as have `bytes`, and at least
/// one; and whether the statement has more.
pub async fn first(
    client: &Client,
    texts: &[&str],
    (sql, values): (&str, &[Param<'_>]),
    (bytes, end): (usize, End),
) -> Result<(Vec<Row>, bool), Error> {
    let size = |name: &&str| format!("coalesce(octet_length(p.{name}), 0)");
    let size: Vec<String> = texts.iter().map(size).collect();
    let (size, mark) = (size.join(" + "), values.len() + 1);
    let preceding = match end {
        End::At => 1,
        End::After => 2,
    };
    // The size of a text is known without reading it. The rows keep their order.
    let sql = format!(
        "SELECT * FROM (SELECT p.*, coalesce(sum({size}) OVER (ROWS BETWEEN UNBOUNDED PRECEDING \
         AND {preceding} PRECEDING), 0) AS before_, count(*) OVER () AS all_ FROM ({sql}) p) q \
         WHERE before_ < ${mark}"
    );
    let bytes = i64::try_from(bytes.max(1)).unwrap_or(i64::MAX);
    let values: Vec<Param<'_>> = values.iter().cloned().chain([Param::from(bytes)]).collect();
    let rows = client.query(&sql, &values).await?;
    let more = match rows.first() {
        Some(row) => row.cell::<i64>(row.len() - 1)? > rows.len() as i64,
        None => false,
    };
    Ok((rows, more))
}
