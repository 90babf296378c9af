//! Functions without a client.

use flashyard_controller::pcie::AdminQueues;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use flashyard_engine::Limits;
use flashyard_runtime::shared_memory::{Mapping, memory_file};
use flashyard_runtime::uring;
use flashyard_testbed::{Bench, subnqn};

use super::*;

fn spec(tenant: &str) -> FunctionSpec {
    FunctionSpec {
        subnqn: Nqn::new(&subnqn(tenant)).expect("a good name"),
        host: HostId {
            nqn: Nqn::new("nqn.2026-11.test:function").expect("a good name"),
            id: [1; 16],
        },
        doorbells: Doorbells::default(),
        cores: 1,
    }
}

const QUEUES: AdminQueues = AdminQueues {
    submission: 0,
    submission_entries: 2,
    completion: 0,
    completion_entries: 2,
    configuration: 0,
};

/// While a device moves data a guest may change CC.EN as often as it likes.
#[test]
fn changes_of_an_enabled_controller_do_not_add_up() {
    let ran = uring::run(uring::Config::default(), |rt| async move {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bench = Bench::new(vec![rt.clone()], any, rt.clone(), Limits::default());
        bench.attach_memory("a", 1);
        let file = memory_file(4096).expect("a memfd");
        let mapping = Mapping::new(file.as_fd(), 0, 4096, true).expect("mapped");
        let mapping = Rc::new(mapping);
        // One whose controllers are made at once, and one for which each would be tried again.
        for tenant in ["a", "nobody"] {
            let state = State::new(&bench.cores[0], spec(tenant));
            let state = state.expect("no doorbells in memory");
            let lent = state.worker.loans.lend(&mapping, 0, 4096);
            for _ in 0..100 {
                state.apply(Change::Enable(QUEUES));
                rt.turn_end().await;
                state.apply(Change::Disable);
                rt.turn_end().await;
                assert!(Rc::strong_count(&state) < 4, "something waits for each");
            }
            drop(lent);
            state.reset();
            rt.turn_end().await;
            assert_eq!(Rc::strong_count(&state), 1);
            assert_eq!(bench.target.snapshot().alive.connections, 0);
        }
    });
    ran.expect("this machine has io_uring");
}
