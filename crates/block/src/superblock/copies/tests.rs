//! Both copies with a small content, in two places in memory: cut at every write, damaged, missing.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::super::fields::{Reader, Writer};
use super::super::frame::seal;
use super::*;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    generation: u64,
    text: String,
}

impl Content for Note {
    type Contradiction = &'static str;
    const MAGIC: [u8; 8] = *b"TESTNOTE";
    const VERSION: u32 = 3;
    const MAX_BYTES: usize = 256;

    fn generation(&self) -> u64 {
        self.generation
    }

    fn write(&self, fields: &mut Writer) {
        fields.u64(self.generation);
        fields.bytes(&[0xab; 40]);
        fields.count(self.text.len());
        fields.bytes(self.text.as_bytes());
    }

    fn read(fields: &mut Reader<'_>) -> Option<Self> {
        let generation = fields.u64()?;
        fields.array::<40>()?;
        let len = fields.count(100)?;
        let text = fields.text(len)?;
        Some(Self { generation, text })
    }

    fn check(&self) -> Result<(), &'static str> {
        match self.text.contains('!') {
            true => Err("it shouts"),
            false => Ok(()),
        }
    }
}

fn note(generation: u64, text: &str) -> Note {
    Note {
        generation,
        text: text.into(),
    }
}

/// Two places that stop taking bytes when the power goes.
#[derive(Default)]
struct Memory {
    places: [RefCell<Vec<u8>>; 2],
    unreadable: Cell<Option<usize>>,
    /// Others that hold the same, as the members of a mirror do.
    mirrors: Vec<Memory>,
    /// Bytes that are still written.
    power: Cell<usize>,
}

#[derive(Debug, PartialEq, Eq)]
struct PowerCut;

impl Memory {
    fn new() -> Self {
        let memory = Self::default();
        memory.power.set(usize::MAX);
        memory
    }

    fn found(&self) -> Found<Note> {
        now(find(self)).expect("both can be read")
    }

    fn commit(&self, content: &Note, newest: usize) -> Result<usize, PowerCut> {
        now(commit(self, prepare(self, content)?, newest))
    }
}

impl Places for Memory {
    type Error = PowerCut;
    type Bytes = Vec<u8>;

    async fn read(&self, place: usize) -> Result<Reads<Vec<u8>>, PowerCut> {
        let read = |device: &Self| {
            let bytes = device.places[place].borrow().clone();
            match () {
                () if device.unreadable.get() == Some(place) => Raw::Unreadable,
                () if bytes.is_empty() => Raw::Blank,
                () => Raw::Bytes(bytes),
            }
        };
        let others = self.mirrors.iter().map(read);
        Ok([read(self)].into_iter().chain(others).collect())
    }
}

impl WritablePlaces for Memory {
    type Laid = Vec<u8>;

    fn lay_out(&self, bytes: &[u8]) -> Result<Vec<u8>, PowerCut> {
        Ok(bytes.to_vec())
    }

    async fn write(&self, place: usize, laid: Vec<u8>) -> Result<(), PowerCut> {
        let mirrored = self
            .mirrors
            .iter()
            .try_for_each(|it| it.store(place, &laid));
        mirrored.and(self.store(place, &laid))
    }
}

impl Memory {
    fn store(&self, place: usize, laid: &[u8]) -> Result<(), PowerCut> {
        let written = laid.len().min(self.power.get());
        self.power.set(self.power.get() - written);
        let mut bytes = self.places[place].borrow_mut();
        let len = bytes.len().max(written);
        bytes.resize(len, 0);
        bytes[..written].copy_from_slice(&laid[..written]);
        (written == laid.len()).then_some(()).ok_or(PowerCut)
    }
}

/// What is ready at once.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("nothing here waits"),
    }
}

#[test]
fn a_cut_after_any_byte_leaves_the_old_or_the_new_state_and_is_repaired() {
    let (old, new) = (note(4, "old"), note(5, "something newer"));
    let len = encode(&new).len();
    for newest in 0..2 {
        for power in 0..=2 * len {
            let memory = Memory::new();
            let place = memory.commit(&old, 1 - newest).expect("there is power");
            assert_eq!(place, newest);
            memory.power.set(power);
            let done = memory.commit(&new, newest);
            assert_eq!(done.is_ok(), power == 2 * len, "{power}");
            memory.power.set(usize::MAX);

            let found = memory.found().newest().expect("one is whole");
            let expected = if power < len { &old } else { &new };
            assert_eq!(found.content, *expected, "{power}");
            now(repair(&memory, &found)).expect("there is power");
            let repaired = memory.found().newest().expect("both are whole");
            assert_eq!((&repaired.content, repaired.other), (expected, Other::Same));
            assert_eq!(memory.found().highest().0, expected.generation);
        }
    }
}

#[test]
fn the_newest_valid_copy_counts_or_the_error_says_why_none_does() {
    let valid = |generation, text: &str| Decoded::Valid(note(generation, text));
    let damaged = || Decoded::Damaged("flipped".into());
    let (flipped, none) = ("flipped".to_owned(), "there is none".to_owned());
    let contradiction = "same generation as the other copy, other content".to_owned();
    let counts = |generation, text, place, other| {
        Ok(Newest {
            content: note(generation, text),
            place,
            other,
            uneven: [false; 2],
        })
    };
    let cases = [
        (
            [valid(1, "a"), valid(1, "a")],
            counts(1, "a", 0, Other::Same),
        ),
        (
            [valid(2, "b"), valid(1, "a")],
            counts(2, "b", 0, Other::Older),
        ),
        (
            [valid(1, "a"), valid(2, "b")],
            counts(2, "b", 1, Other::Older),
        ),
        (
            [valid(1, "a"), damaged()],
            counts(1, "a", 0, Other::Unusable),
        ),
        (
            [Decoded::Absent, valid(1, "a")],
            counts(1, "a", 1, Other::Unusable),
        ),
        ([Decoded::Absent, Decoded::Absent], Err(Unusable::Absent)),
        (
            [damaged(), Decoded::Absent],
            Err(Unusable::Unfinished([flipped.clone(), none])),
        ),
        (
            [damaged(), damaged()],
            Err(Unusable::Damaged([flipped.clone(), flipped])),
        ),
        (
            [valid(1, "a"), valid(1, "b")],
            Err(Unusable::Damaged([contradiction.clone(), contradiction])),
        ),
        ([valid(1, "a"), Decoded::Newer(4)], Err(Unusable::Newer(4))),
        ([Decoded::Newer(9), damaged()], Err(Unusable::Newer(9))),
    ];
    for (copies, expected) in cases {
        let found = Found {
            copies,
            uneven: [false; 2],
        };
        assert_eq!(found.clone().newest(), expected, "{found:?}");
    }
}

#[test]
fn what_cannot_be_read_or_is_inconsistent_is_damaged() {
    let memory = Memory::new();
    memory.commit(&note(1, "a"), 0).expect("there is power");
    memory.unreadable.set(Some(0));
    let found = memory.found();
    assert_eq!(
        found.copies[0],
        Decoded::Damaged("it cannot be read".into())
    );
    assert_eq!(found.newest().expect("one is whole").place, 1);

    memory.unreadable.set(None);
    memory.commit(&note(2, "a!"), 0).expect("there is power");
    let found = memory.found();
    assert_eq!(found.copies[1], Decoded::Damaged("it shouts".into()));
    assert_eq!(found.highest(), (0, 0));
}

/// Of three devices that keep both places one has lost the last change, another holds something
/// else, and the third cannot be read at one place: the newest counts, and all are put right.
#[test]
fn the_newest_of_all_devices_counts_and_is_written_to_the_others() {
    let (old, new) = (note(1, "a"), note(2, "b"));
    let mut memory = Memory::new();
    memory.mirrors = vec![Memory::new(), Memory::new()];
    memory.commit(&old, 1).expect("there is power");
    memory.mirrors[1].commit(&new, 0).expect("there is power");
    memory.mirrors[0].places[0].borrow_mut().fill(0);
    let found = memory.found();
    assert_eq!(found.copies[0], Decoded::Valid(new.clone()));
    assert_eq!(found.uneven, [true; 2]);
    memory.mirrors[1].unreadable.set(Some(0));
    let found = memory.found();
    assert_eq!(found.copies[0], Decoded::Valid(old));
    let newest = found.newest().expect("one is whole");
    assert_eq!((&newest.content, newest.place), (&new, 1));
    memory.mirrors[1].unreadable.set(None);
    now(repair(&memory, &newest)).expect("there is power");
    for device in &memory.mirrors {
        let whole = || Decoded::Valid(new.clone());
        assert_eq!(device.found().copies, [whole(), whole()]);
    }
    assert_eq!(memory.found().uneven, [false; 2]);
}

/// Of one generation there is one content: with two of them at a place none counts, and the other
/// place does.
#[test]
fn devices_that_contradict_each_other_at_a_place_are_not_chosen_from() {
    let mut memory = Memory::new();
    memory.mirrors = vec![Memory::new()];
    memory.commit(&note(2, "a"), 0).expect("there is power");
    let other = encode(&note(2, "b"));
    memory.mirrors[0].store(0, &other).expect("there is power");
    let found = memory.found();
    let Decoded::Damaged(why) = &found.copies[0] else {
        panic!("{found:?}");
    };
    assert!(why.contains("other content"), "{why}");
    assert_eq!(found.uneven, [true, false]);
    let newest = found.newest().expect("the other place is whole");
    assert_eq!((&*newest.content.text, newest.place), ("a", 1));
    now(repair(&memory, &newest)).expect("there is power");
    assert_eq!(memory.mirrors[0].found().copies, memory.found().copies);
    // A later state on a third device is none of the two.
    memory.mirrors.push(Memory::new());
    memory.mirrors[0].store(0, &other).expect("there is power");
    let later = encode(&note(3, "c"));
    memory.mirrors[1].store(0, &later).expect("there is power");
    assert_eq!(memory.found().copies[0], Decoded::Valid(note(3, "c")));
}

/// Nothing is there if one device says so and another cannot be read.
#[test]
fn what_one_device_cannot_read_is_what_another_holds() {
    let mut memory = Memory::new();
    memory.mirrors = vec![Memory::new()];
    for (unreadable, other) in [(0, 1), (1, 0)] {
        let devices = [&memory, &memory.mirrors[0]];
        devices[unreadable].unreadable.set(Some(0));
        devices[other].unreadable.set(None);
        let found = memory.found();
        assert_eq!(found.copies, [Decoded::Absent, Decoded::Absent]);
        assert_eq!(found.uneven, [true, false]);
    }
}

/// What a later program has written is in force, whatever another device holds.
#[test]
fn a_later_version_on_one_device_is_refused() {
    let mut memory = Memory::new();
    memory.mirrors = vec![Memory::new()];
    memory.commit(&note(9, "a"), 0).expect("there is power");
    let mut later = encode(&note(1, "b"));
    later[8] = 200;
    seal(&mut later);
    memory.mirrors[0].store(0, &later).expect("there is power");
    assert_eq!(memory.found().newest(), Err(Unusable::Newer(200)));
}

#[test]
fn the_highest_generation_is_found_wherever_it_is() {
    let valid = |generation| Decoded::Valid(note(generation, "a"));
    let damaged = || Decoded::Damaged("flipped".into());
    let cases = [
        ([valid(2), valid(1)], (2, 0)),
        ([valid(1), valid(2)], (2, 1)),
        ([damaged(), valid(3)], (3, 1)),
        ([valid(3), Decoded::Absent], (3, 0)),
        ([Decoded::Newer(9), damaged()], (0, 0)),
    ];
    for (copies, expected) in cases {
        let found = Found {
            copies,
            uneven: [false; 2],
        };
        assert_eq!(found.highest(), expected, "{found:?}");
    }
}

#[test]
fn what_does_not_fit_its_frame_is_damaged_whatever_its_checksum() {
    let text = "a".repeat(100);
    let whole = encode(&note(7, &text));
    let seal_with = |bytes: &mut Vec<u8>| {
        let length = bytes.len() as u32;
        bytes[12..16].copy_from_slice(&length.to_le_bytes());
        seal(bytes);
        decode::<Note>(bytes)
    };
    assert_eq!(
        seal_with(&mut whole.clone()),
        Decoded::Valid(note(7, &text))
    );
    let damaged = Decoded::Damaged("its lists do not fit its length".into());
    // A byte behind the last field; and one letter more than there may be.
    let mut longer = whole;
    longer.push(b'a');
    assert_eq!(seal_with(&mut longer), damaged);
    longer[68] += 1;
    assert_eq!(seal_with(&mut longer), damaged);
    // A frame with nothing in it.
    longer.truncate(20);
    let short = Decoded::Damaged("its length is impossible".into());
    assert_eq!(seal_with(&mut longer), short);
}

#[test]
fn the_bytes_are_those_of_the_table_and_each_changed_bit_is_noticed() {
    let bytes = encode(&note(7, "abc"));
    assert_eq!(bytes[..16], *b"TESTNOTE\x03\0\0\0\x4b\0\0\0");
    assert_eq!(bytes[20..28], 7_u64.to_le_bytes());
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1 << (at % 8);
        for what in [&changed[..], &bytes[..at]] {
            assert!(!matches!(decode::<Note>(what), Decoded::Valid(_)), "{at}");
        }
    }
}
