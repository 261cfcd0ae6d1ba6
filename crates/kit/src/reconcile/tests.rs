//! A run against providers in memory: what is read, in which order, and what a failed run repeats.

use super::*;
use std::sync::Mutex;

/// Events `e0`, `e1`, … created at the given seconds, in pages of two.
struct Listed {
    created: Vec<u64>,
    /// The page that fails, once.
    fails: Option<usize>,
    asked: Vec<u64>,
}

impl Listed {
    fn new(created: &[u64]) -> Listed {
        Listed { created: created.to_vec(), fails: None, asked: Vec::new() }
    }
}

impl Provider for Listed {
    async fn page(&mut self, since: u64, cursor: Option<&str>) -> Result<EventPage, client::Error> {
        let from: usize = cursor.map_or(0, |cursor| cursor.parse().unwrap());
        if cursor.is_none() {
            self.asked.push(since);
        }
        if self.fails.take_if(|page| *page * 2 == from).is_some() {
            return Err(client::Error::Unexpected("a test".to_owned()));
        }
        let all = self.created.iter().enumerate().filter(|(_, created)| **created >= since);
        let all: Vec<Event> = all
            .map(|(number, created)| Event {
                id: format!("e{number}"),
                kind: "t".to_owned(),
                created: *created,
                text: "{}".to_owned(),
            })
            .collect();
        let next = (from + 2 < all.len()).then(|| (from + 2).to_string());
        Ok(EventPage { events: all.into_iter().skip(from).take(2).collect(), next })
    }
}

#[derive(Default)]
struct Known(Mutex<Vec<String>>);

impl Sink for &Known {
    type Error = &'static str;

    async fn offer(&self, event: &Event) -> Result<Offered, Self::Error> {
        let mut known = self.0.lock().unwrap();
        if event.id == "e99" {
            return Err("full");
        }
        if known.contains(&event.id) {
            return Ok(Offered::Known);
        }
        known.push(event.id.clone());
        Ok(Offered::New)
    }
}

fn reconciler(provider: Listed, sink: &Known) -> Reconciler<Listed, &Known> {
    Reconciler::new(provider, sink)
        .lookback(Duration::from_secs(1000))
        .overlap(Duration::from_secs(100))
        .min_age(Duration::from_secs(10))
}

#[tokio::test]
async fn a_run_offers_everything_since_the_last_one_and_leaves_young_events_to_the_next() {
    let sink = Known(Mutex::new(vec!["e1".to_owned()]));
    let provider = Listed::new(&[8_500, 9_100, 9_200, 9_980, 9_991, 9_999, 10_050]);
    let mut reconciler = reconciler(provider, &sink);
    let report = reconciler.run_at(10_000).await.unwrap();
    assert_eq!(report, Report { checked: 3, missed: 2, through: Some(9_980) });
    assert_eq!(*sink.0.lock().unwrap(), ["e1", "e2", "e3"]);
    let report = reconciler.run_at(10_020).await.unwrap();
    assert_eq!(report, Report { checked: 3, missed: 2, through: Some(9_999) });
    assert_eq!(*sink.0.lock().unwrap(), ["e1", "e2", "e3", "e4", "e5"]);
    assert_eq!(reconciler.provider.asked, [9_000, 9_880]);
}

#[tokio::test]
async fn a_wrong_clock_here_skips_no_event() {
    // How far the clock is wrong at the first, the second and the third run, in seconds.
    for wrong in [[660, 660, 660], [660, 0, 0], [40 * 86_400; 3], [0, 86_400, 0], [-900, 0, 0]] {
        let sink = Known::default();
        let mut first = reconciler(Listed::new(&[9_900]), &sink);
        for (run, wrong) in wrong.into_iter().enumerate() {
            let now = 10_000 + 300 * run as u64;
            // One is created after each run, and its webhook is lost.
            first.run_at(now.saturating_add_signed(wrong)).await.unwrap();
            first.provider.created.push(now + 1);
        }
        // After a restart, with the right time.
        let through = first.through;
        let mut second = reconciler(first.provider, &sink).lookback(Duration::from_secs(2_000));
        if let Some(through) = through {
            second = second.since(through);
        }
        second.run_at(11_000).await.unwrap();
        let mut known = sink.0.lock().unwrap().clone();
        known.sort();
        assert_eq!(known, ["e0", "e1", "e2", "e3"], "{wrong:?}");
    }
}

#[tokio::test]
async fn a_position_from_the_future_is_forgotten() {
    // The position, where a run at 10,000 begins, and the position after it. A clock may have been
    // set back a little.
    for (through, begin, after) in [
        (9_500, 9_400, 9_990),
        (10_050, 9_900, 10_050),
        (10_101, 9_000, 9_990),
        (u64::MAX, 9_000, 9_990),
    ] {
        let sink = Known::default();
        let mut reconciler = reconciler(Listed::new(&[9_990]), &sink).since(through);
        let report = reconciler.run_at(10_000).await.unwrap();
        assert_eq!(reconciler.provider.asked, [begin], "{through}");
        assert_eq!(report.through, Some(after), "{through}");
    }
}

#[tokio::test]
async fn a_run_without_an_event_does_not_move_the_begin_of_the_next() {
    let sink = Known::default();
    let mut reconciler = reconciler(Listed::new(&[]), &sink);
    for now in [10_000, 20_000] {
        let report = reconciler.run_at(now).await.unwrap();
        assert_eq!(report, Report { checked: 0, missed: 0, through: None });
    }
    assert_eq!(reconciler.provider.asked, [9_000, 9_000]);
}

#[tokio::test]
async fn a_failed_run_is_repeated_from_its_beginning() {
    let sink = Known::default();
    let mut reconciler = reconciler(Listed::new(&[9_100, 9_101, 9_102, 9_103]), &sink);
    reconciler.provider.fails = Some(1);
    let error = reconciler.run_at(10_000).await.unwrap_err();
    assert!(matches!(error, Error::Provider(_)), "{error}");
    let report = reconciler.run_at(12_000).await.unwrap();
    assert_eq!(reconciler.provider.asked, [9_000, 9_000], "although time has passed");
    assert_eq!((report.checked, report.missed), (4, 2));
    assert_eq!(*sink.0.lock().unwrap(), ["e0", "e1", "e2", "e3"]);
}

#[tokio::test]
async fn a_run_ends_when_the_sink_cannot_store_and_says_why() {
    let sink = Known::default();
    let mut created = vec![9_100; 100];
    created[99] = 9_101;
    let mut reconciler = reconciler(Listed::new(&created), &sink);
    let error = reconciler.run_at(10_000).await.unwrap_err().to_string();
    assert_eq!(error, "cannot store a missed event: full");
    assert_eq!(reconciler.through, None);
}
