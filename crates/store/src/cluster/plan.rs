//! Which buckets a node takes and which it hands over, from what it sees of the cluster. Pure: the
//! database decides who wins when two nodes want the same bucket.

use super::{BUCKETS, Bucket};
use std::collections::{BTreeMap, BTreeSet};

/// What a node sees at a tick.
#[derive(Clone, Debug, Default)]
pub struct View {
    pub me: i64,
    /// How many nodes there are, those that serve nothing included.
    pub nodes: usize,
    /// Nodes that serve and whose heartbeat is recent enough, this one included.
    pub live: BTreeSet<i64>,
    /// The node that each bucket belongs to, alive or not.
    pub owners: BTreeMap<Bucket, Option<i64>>,
    /// Buckets that this node is handing over already.
    pub leaving: BTreeSet<Bucket>,
    /// Buckets that no live node held at the last tick.
    pub unclaimed: BTreeSet<Bucket>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Free buckets to take now.
    pub take: Vec<Bucket>,
    /// A bucket to hand over, and the node that gets it.
    pub hand_over: Option<(Bucket, i64)>,
    /// Buckets that no live node holds.
    pub unclaimed: BTreeSet<Bucket>,
}

/// Free buckets are taken at once, up to this node's share. What nobody took until the next tick is
/// taken whatever the share: a node may be alive and too slow to take its part. For balance a
/// node hands over one bucket per tick to the live node with the fewest.
pub fn plan(view: &View) -> Plan {
    let nodes = view.live.len().max(1);
    let owner = |bucket: Bucket| view.owners.get(&bucket).copied().flatten();
    let live_owner = |bucket: Bucket| owner(bucket).filter(|node| view.live.contains(node));
    let mut counts: BTreeMap<i64, usize> = view.live.iter().map(|node| (*node, 0)).collect();
    let mut unclaimed = BTreeSet::new();
    for bucket in 0..=Bucket::MAX {
        match live_owner(bucket) {
            Some(node) => *counts.entry(node).or_default() += 1,
            None => drop(unclaimed.insert(bucket)),
        }
    }
    let mine = counts.get(&view.me).copied().unwrap_or(0);
    let share = BUCKETS.div_ceil(nodes);
    let room = share.saturating_sub(mine);
    // Each node begins elsewhere, so that nodes that tick at the same time rarely want the same.
    let place = view.live.iter().position(|node| *node == view.me).unwrap_or(0);
    let begin = u8::try_from(place * BUCKETS / nodes).unwrap_or(0);
    let (before, after): (Vec<Bucket>, Vec<Bucket>) =
        unclaimed.iter().partition(|bucket| **bucket < begin);
    let mut take: Vec<Bucket> = after.into_iter().chain(before).take(room).collect();
    for bucket in unclaimed.intersection(&view.unclaimed) {
        if !take.contains(bucket) {
            take.push(*bucket);
        }
    }
    let hand_over = hand_over(view, &counts, mine + take.len());
    Plan { take, hand_over, unclaimed }
}

fn hand_over(view: &View, counts: &BTreeMap<i64, usize>, mine: usize) -> Option<(Bucket, i64)> {
    // One at a time: the next one when this one has left.
    if !view.leaving.is_empty() {
        return None;
    }
    let others = counts.iter().filter(|(node, _)| **node != view.me);
    let (node, least) = others.min_by_key(|(node, count)| (**count, **node))?;
    // Moving one must make the difference smaller.
    if mine < least + 2 {
        return None;
    }
    let mut own = view.owners.iter().filter(|(_, owner)| **owner == Some(view.me));
    own.next_back().map(|(bucket, _)| (*bucket, *node))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(me: i64, live: &[i64], owner: impl Fn(Bucket) -> Option<i64>) -> View {
        let owners = (0..=255).map(|bucket| (bucket, owner(bucket))).collect();
        View { me, live: live.iter().copied().collect(), owners, ..View::default() }
    }

    #[test]
    fn the_first_node_takes_everything_and_hands_over_one_bucket_per_tick() {
        let first = plan(&view(1, &[1], |_| None));
        assert_eq!((first.take.len(), first.hand_over), (BUCKETS, None));
        let mut both = view(1, &[1, 2], |_| Some(1));
        assert_eq!(plan(&both), Plan { hand_over: Some((255, 2)), ..Plan::default() });
        both.leaving.insert(255);
        assert_eq!(plan(&both), Plan::default(), "until it has left");
        // The other one takes nothing from a node that is alive.
        let second = view(2, &[1, 2], |_| Some(1));
        assert_eq!(plan(&second), Plan::default());
    }

    #[test]
    fn buckets_of_a_dead_node_are_taken_at_once_by_all_that_are_left() {
        let owner = |bucket: Bucket| Some(i64::from(bucket) % 3 + 1);
        let plans = [1, 2].map(|me| plan(&view(me, &[1, 2], owner)));
        let mut taken: Vec<Bucket> = plans.iter().flat_map(|plan| plan.take.clone()).collect();
        taken.sort_unstable();
        taken.dedup();
        let dead: Vec<Bucket> = (0..=255).filter(|bucket| owner(*bucket) == Some(3)).collect();
        assert_eq!(taken, dead);
        assert!(plans.iter().all(|plan| plan.take.len() <= 128 - 85 + 1));
        // A node that does not take its part leaves nothing behind for long.
        let mut again = view(1, &[1, 2], owner);
        again.unclaimed = plans[0].unclaimed.clone();
        assert_eq!(plan(&again).take.len(), dead.len());
    }

    #[test]
    fn a_cluster_in_balance_moves_nothing() {
        for nodes in 1..=7 {
            let live: Vec<i64> = (1..=nodes).collect();
            let owner = |bucket: Bucket| Some(i64::from(bucket) % nodes + 1);
            for me in &live {
                let plan = plan(&view(*me, &live, owner));
                assert_eq!((plan.take.len(), plan.hand_over), (0, None), "{me} of {nodes}");
            }
        }
    }

    #[test]
    fn any_start_ends_in_balance_and_serves_every_bucket() {
        let mut chance = 11_u64;
        let mut draw = |below: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (chance >> 33) % below
        };
        for _ in 0..6 {
            let nodes = 1 + draw(5) as i64;
            let live: Vec<i64> = (1..=nodes).collect();
            let mut owners: Vec<Option<i64>> =
                (0..256).map(|_| Some(draw(8) as i64).filter(|node| *node > 0)).collect();
            let mut unclaimed = vec![BTreeSet::new(); live.len()];
            for _ in 0..300 {
                for me in &live {
                    let place = *me as usize - 1;
                    let mut seen = view(*me, &live, |bucket| owners[usize::from(bucket)]);
                    seen.unclaimed = std::mem::take(&mut unclaimed[place]);
                    let plan = plan(&seen);
                    for bucket in plan.take {
                        owners[usize::from(bucket)] = Some(*me);
                    }
                    if let Some((bucket, node)) = plan.hand_over {
                        owners[usize::from(bucket)] = Some(node);
                    }
                    unclaimed[place] = plan.unclaimed;
                }
            }
            let count = |node: i64| owners.iter().filter(|owner| **owner == Some(node)).count();
            let counts: Vec<usize> = live.iter().map(|node| count(*node)).collect();
            let (least, most) = (counts.iter().min().copied(), counts.iter().max().copied());
            assert_eq!(counts.iter().sum::<usize>(), BUCKETS);
            assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{counts:?}");
        }
    }
}
