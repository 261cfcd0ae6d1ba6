//! Which positions are written at a tick: that of the head, and those of endpoints that have not
//! come as far. Pure.
//!
//! An endpoint without a row is at the stored head, so the head is stored no further than the
//! endpoints without a row have come. A position in the store may lag behind, but never runs ahead:
//! every event after it is looked at again after a kill.

/// How far an endpoint has come.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub endpoint: i64,
    pub position: i64,
    /// The position in its row, if it has one.
    pub stored: Option<i64>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Endpoints and their rows; `None` to remove a row.
    pub rows: Vec<(i64, Option<i64>)>,
    /// The head to store.
    pub head: i64,
}

/// What to write if the head has come to `head`: `most` rows at most. Those without a row that are
/// furthest behind come first, because they hold the stored head back; then the oldest rows.
pub fn plan(places: impl Iterator<Item = Place>, head: i64, most: usize) -> Plan {
    let (mut new, mut changed) = (Vec::new(), Vec::new());
    for place in places {
        let row = (place.position < head).then_some(place.position);
        match place.stored {
            None if row.is_some() => new.push(place),
            Some(stored) if row != Some(stored) => changed.push((stored, place.endpoint, row)),
            _ => {}
        }
    }
    new.sort_unstable_by_key(|place| (place.position, place.endpoint));
    let head = new.get(most).map_or(head, |first_without| first_without.position);
    let mut rows: Vec<(i64, Option<i64>)> = new
        .iter()
        .take(most)
        // The stored head says as much for these.
        .filter(|place| place.position < head)
        .map(|place| (place.endpoint, Some(place.position)))
        .collect();
    changed.sort_unstable();
    let left = most - rows.len();
    rows.extend(changed.into_iter().take(left).map(|(_, endpoint, row)| (endpoint, row)));
    Plan { rows, head }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn check(
        places: &[(i64, i64, Option<i64>)],
        head: i64,
        most: usize,
        rows: &[(i64, Option<i64>)],
        stored_head: i64,
    ) {
        let places = places
            .iter()
            .map(|(endpoint, position, stored)| Place {
                endpoint: *endpoint,
                position: *position,
                stored: *stored,
            })
            .collect::<Vec<_>>();
        let expected = Plan { rows: rows.to_vec(), head: stored_head };
        assert_eq!(plan(places.into_iter(), head, most), expected);
    }

    #[test]
    fn endpoints_at_the_head_need_no_row_and_the_others_get_one_within_the_limit() {
        check(&[], 9, 2, &[], 9);
        check(&[(1, 9, None), (2, 12, None)], 9, 2, &[], 9);
        check(&[(1, 5, None), (2, 9, Some(3))], 9, 2, &[(1, Some(5)), (2, None)], 9);
        check(&[(1, 5, Some(5)), (2, 7, Some(6))], 9, 2, &[(2, Some(7))], 9);
        // Too many: the head waits for those without a row.
        check(
            &[(1, 7, None), (2, 3, None), (3, 5, None), (4, 9, Some(1))],
            9,
            2,
            &[(2, Some(3)), (3, Some(5))],
            7,
        );
        // All at one position: the head alone says it.
        check(&[(1, 4, None), (2, 4, None), (3, 4, None), (4, 9, Some(1))], 9, 2, &[(4, None)], 4);
        // The oldest rows first.
        check(&[(1, 8, Some(6)), (2, 8, Some(2)), (3, 9, Some(4))], 9, 1, &[(2, Some(8))], 9);
    }

    #[test]
    fn a_stored_position_never_runs_ahead_of_its_endpoint() {
        let mut chance = 7_u64;
        let mut draw = |below: i64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            i64::try_from(chance >> 33).unwrap() % below
        };
        let mut actual = [0_i64; 12];
        let (mut head, mut stored_head) = (0, 0);
        let mut stored = BTreeMap::new();
        for _ in 0..5_000 {
            head += draw(5);
            for position in &mut actual {
                *position = (*position + draw(9)).min(head).max(*position);
            }
            let places = (0..12).map(|endpoint| Place {
                endpoint,
                position: actual[endpoint as usize],
                stored: stored.get(&endpoint).copied(),
            });
            let plan = plan(places, head, draw(4) as usize);
            assert!(plan.head >= stored_head, "the head went back");
            stored_head = plan.head;
            for (endpoint, row) in plan.rows {
                match row {
                    Some(row) => stored.insert(endpoint, row),
                    None => stored.remove(&endpoint),
                };
            }
            for (endpoint, position) in (0..).zip(actual) {
                let known = stored.get(&endpoint).copied().unwrap_or(stored_head);
                assert!(known <= position, "{endpoint} is at {position}, stored {known}");
            }
        }
    }
}
