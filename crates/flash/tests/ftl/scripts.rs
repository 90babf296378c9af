//! One behaviour each.

use flashyard_flash::channel;
use flashyard_flash::ftl::{Op, Options, Outcome, State};

use crate::owner::Owner;

fn owner() -> Owner {
    Owner::on(
        "dct983",
        24,
        1,
        channel::Options::default(),
        Options::default(),
    )
}

#[test]
fn what_is_written_is_read() {
    let mut owner = owner();
    assert_eq!(owner.ftl.state(), State::Ready);
    assert_eq!(owner.read(7), Some(0));
    owner.submit(Op::Write { durable: false }, 5, 100, 1000);
    owner.settle();
    assert_eq!(owner.read_many(4, 3), [Some(0), Some(1000), Some(1001)]);
    owner.submit(Op::Flush, 0, 0, 0);
    owner.settle();
    assert_eq!(owner.read(104), Some(1099));
    owner.submit(Op::Deallocate, 50, 10, 0);
    owner.settle();
    assert_eq!(owner.read_many(49, 3), [Some(1044), Some(0), Some(0)]);
    owner.ftl.check().expect("the map is sound");
    assert!(
        owner
            .done
            .iter()
            .all(|(_, outcome)| *outcome == Outcome::Success)
    );
}

#[test]
fn a_flushed_write_survives_a_cut() {
    for name in ["dct983", "cnex", "970pro"] {
        let mut owner = Owner::on(name, 24, 1, channel::Options::default(), Options::default());
        owner.submit(Op::Write { durable: true }, 5, 3, 1000);
        owner.settle();
        assert_eq!(owner.done.len(), 1, "{name}");
        owner.cut();
        owner.recover();
        assert_eq!(owner.ftl.state(), State::Ready, "{name}");
        assert_eq!(owner.read_many(4, 3), [Some(0), Some(1000), Some(1001)]);
    }
}
