//! Runs conversions between versions that could take long. The operator writes the formulas,
//! customers write the values: with large values, an evaluation takes milliseconds. Such
//! conversions run on threads of their own, a few at a time, so that they keep no connection
//! waiting. Accounts take turns, one slice of time each. Knows no version.

use crate::readers::Readers;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

/// After this time the next account has its turn.
const SLICE: Duration = Duration::from_millis(10);
/// What the conversions for one response may cost at most to be run at once, in steps of formulas:
/// 1 ms.
pub const INLINE_UNITS: u64 = 10_000;
/// The same for one event on a connection, which sends 16 of them before others have their turn.
pub const INLINE_EVENT_UNITS: u64 = INLINE_UNITS / 16;

#[derive(Debug)]
pub struct Conversions(Arc<Readers>);

impl Default for Conversions {
    /// Half of the processors, so that conversions leave time for everything else.
    fn default() -> Conversions {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Conversions(Readers::new(cores / 2))
    }
}

impl Conversions {
    /// Converts all items for an account.
    pub async fn run<T: Send + 'static, R: Send + 'static>(
        &self,
        account: i64,
        items: Vec<T>,
        convert: impl Fn(T) -> R + Send + 'static,
    ) -> Vec<R> {
        let mut work = Work { done: Vec::with_capacity(items.len()), left: items.into_iter() };
        let mut convert = convert;
        while work.left.len() > 0 {
            let slot = self.0.place(account).await;
            let slice = spawn_blocking(move || {
                work.slice(&convert);
                // The next account may begin before this task is polled again.
                drop(slot);
                (work, convert)
            });
            (work, convert) = match slice.await {
                Ok(result) => result,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    // The server is shutting down, and this task with it.
                    Err(_) => std::future::pending().await,
                },
            };
        }
        work.done
    }
}

struct Work<T, R> {
    left: std::vec::IntoIter<T>,
    done: Vec<R>,
}

impl<T, R> Work<T, R> {
    fn slice(&mut self, convert: &impl Fn(T) -> R) {
        let began = Instant::now();
        for item in self.left.by_ref() {
            self.done.push(convert(item));
            if began.elapsed() >= SLICE {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[test]
    fn an_account_that_converts_much_takes_turns_with_others() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let conversions = Conversions(Readers::new(1));
        let order = Arc::new(Mutex::new(Vec::new()));
        let convert = |order: &Arc<Mutex<Vec<i64>>>, account: i64| {
            let order = order.clone();
            move |item: usize| {
                order.lock().push(account);
                // waits for: the end of the slice, as a long conversion does.
                std::thread::sleep(SLICE);
                item
            }
        };
        runtime.block_on(async {
            let many = conversions.run(1, (0..20).collect(), convert(&order, 1));
            let few = conversions.run(2, vec![7], convert(&order, 2));
            let (many, few) = tokio::join!(many, few);
            assert_eq!((many, few), ((0..20).collect(), vec![7]));
        });
        let turn = order.lock().iter().position(|account| *account == 2);
        assert!(turn.is_some_and(|turn| turn <= 2), "{turn:?} of {:?}", order.lock());
    }
}
