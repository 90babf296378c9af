//! Independent runs on all cores at once, with results that do not depend on how many cores there
//! are.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

/// What `run` makes of each job, in the order of the jobs. A panic of one is a panic here.
pub(crate) fn map<J: Sync, R: Send>(jobs: &[J], run: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let next = Mutex::new(0..jobs.len());
    let results = Mutex::new(Vec::with_capacity(jobs.len()));
    let work = || {
        loop {
            let job = next.lock().expect("nobody panics while holding it").next();
            let Some(place) = job else {
                return;
            };
            let result = run(&jobs[place]);
            results
                .lock()
                .expect("nobody panics while holding it")
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
        .expect("nobody panics while holding it");
    results.sort_by_key(|(place, _)| *place);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..100).collect();
        let squares = map(&jobs, |job| job * job);
        assert!(
            squares
                .iter()
                .zip(&jobs)
                .all(|(square, job)| *square == job * job)
        );
        assert!(map(&[] as &[u64], |job| *job).is_empty());
    }
}
