//! Independent runs on all cores at once, with results that do not depend on how many cores there
//! are.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use crate::experiment::{Progress, Refused};

/// What `run` makes of each job, in the order of the jobs. A panic of one is a panic here. Fails
/// when the run is stopped before that.
pub(crate) fn map<J: Sync, R: Send>(
    progress: &dyn Progress,
    jobs: &[J],
    run: impl Fn(&J) -> R + Sync,
) -> Result<Vec<R>, Refused> {
    let results = first(progress, jobs, run);
    match results.len() == jobs.len() {
        true => Ok(results),
        false => Err(Refused::Stopped),
    }
}

/// The same of the first jobs: those that were begun before the run was stopped.
pub(crate) fn first<J: Sync, R: Send>(
    progress: &dyn Progress,
    jobs: &[J],
    run: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let next = Mutex::new(0..jobs.len());
    let results = Mutex::new(Vec::with_capacity(jobs.len()));
    let work = || {
        loop {
            let mut next = next.lock().expect("no thread panics while holding it");
            // In their order, so that those that are begun are the first ones.
            let job = next.next().filter(|_| !progress.is_stopped());
            drop(next);
            let Some(place) = job else {
                return;
            };
            let result = run(&jobs[place]);
            results
                .lock()
                .expect("no thread panics while holding it")
                .push((place, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..cores.min(jobs.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results
        .into_inner()
        .expect("no thread panics while holding it");
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The same where `each` jobs in a row belong together, such as one thing under several seeds: a
/// group that was not finished is left out.
pub(crate) fn first_groups<J: Sync, R: Send>(
    progress: &dyn Progress,
    jobs: &[J],
    each: usize,
    run: impl Fn(&J) -> Result<R, Refused> + Sync,
) -> Result<Vec<R>, Refused> {
    let results = first(progress, jobs, run);
    let whole = results.len() - results.len() % each;
    results.into_iter().take(whole).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::experiment::Silent;

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..100).collect();
        let squares = map(&Silent, &jobs, |job| job * job).expect("it is not stopped");
        assert!(
            squares
                .iter()
                .zip(&jobs)
                .all(|(square, job)| *square == job * job)
        );
        assert_eq!(map(&Silent, &[] as &[u64], |job| *job), Ok(Vec::new()));
    }

    /// Stops the run after some parts.
    struct After(AtomicU64);

    impl Progress for After {
        fn begin(&self, _total: u64) {}
        fn step(&self, _what: &str) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
        fn is_stopped(&self) -> bool {
            self.0.load(Ordering::Relaxed).cast_signed() <= 0
        }
    }

    #[test]
    fn a_stopped_run_has_its_first_results() {
        let jobs: Vec<u64> = (0..1000).collect();
        let run = |after: &After| {
            first(after, &jobs, |job| {
                after.step("");
                *job
            })
        };
        let results = run(&After(AtomicU64::new(7)));
        assert!((7..500).contains(&results.len()), "{}", results.len());
        assert_eq!(results, jobs[..results.len()]);
        let groups = first_groups(&After(AtomicU64::new(7)), &jobs, 4, |job| Ok(*job));
        let groups = groups.expect("no job is refused");
        assert_eq!(groups, jobs[..groups.len()]);
        assert_eq!(groups.len() % 4, 0);
        let none = After(AtomicU64::new(0));
        assert!(run(&none).is_empty());
        assert_eq!(map(&none, &jobs, |job| *job), Err(Refused::Stopped));
    }
}
