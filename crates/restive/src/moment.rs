//! Points in time on the command line: an age, a time, or the id of an event.

use crate::event_id;
use model::parse::duration;
use model::{Schema, Timestamp, id};
use std::str::FromStr;
use std::time::Duration;
use store::Store;

#[derive(Clone, Debug, PartialEq)]
pub enum Moment {
    Ago(Duration),
    At(Timestamp),
    /// The time of this event; a range includes the event itself.
    Event(String),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        if let Some(age) = duration(text) {
            return Ok(Moment::Ago(age));
        }
        let midnight = || Timestamp::parse(&format!("{text}T00:00:00Z"));
        if let Some(time) = Timestamp::parse(text).or_else(midnight) {
            return Ok(Moment::At(time));
        }
        if id::is_well_formed(event_id::PREFIX, text) {
            return Ok(Moment::Event(text.to_owned()));
        }
        Err("write an age such as 30m, 2h or 7d, a time such as 2026-11-15T08:30:00Z, or the whole \
             id of an event (evt_…)"
            .to_owned())
    }
}

impl Moment {
    /// The position in the log after which the events of this moment begin.
    pub async fn position(
        &self,
        schema: &Schema,
        store: &dyn Store,
        now: Timestamp,
    ) -> anyhow::Result<i64> {
        match self {
            Moment::Event(id) => Ok(event_id::find(schema, store, id).await?.1.number - 1),
            _ => Ok(store.before(self.instant(schema, store, now).await?).await?),
        }
    }

    pub async fn instant(
        &self,
        schema: &Schema,
        store: &dyn Store,
        now: Timestamp,
    ) -> anyhow::Result<Timestamp> {
        match self {
            Moment::Ago(age) => {
                let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
                // No time is before 1970.
                Ok(Timestamp(now.0.saturating_sub(age).max(0)))
            }
            Moment::At(time) => Ok(*time),
            Moment::Event(id) => Ok(event_id::find(schema, store, id).await?.1.updated),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ages_times_dates_and_event_ids_are_accepted() {
        let event = "evt_06gxtz49bwd063fdqws53xvgbj3rg";
        let at = |text| Moment::At(Timestamp::parse(text).unwrap());
        for (text, expected) in [
            ("2h", Moment::Ago(Duration::from_secs(7200))),
            ("30m", Moment::Ago(Duration::from_secs(1800))),
            ("7d", Moment::Ago(Duration::from_secs(604_800))),
            ("2026-11-15T10:30:00+02:00", at("2026-11-15T08:30:00Z")),
            ("2026-11-15", at("2026-11-15T00:00:00Z")),
            (event, Moment::Event(event.to_owned())),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        for text in ["", "2", "-2h", "yesterday", "evt_1", &event[4..], "2026-13-01"] {
            assert!(text.parse::<Moment>().is_err(), "{text}");
        }
    }
}
