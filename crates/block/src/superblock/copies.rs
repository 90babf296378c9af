//! Both copies: finds them, decides which of them counts, and changes one after the other.

use std::cmp::Ordering;
use std::ops::Deref;

use super::frame::{Content, Decoded, decode, encode};

/// The two places of the copies, 0 and 1, to be read.
pub trait Places {
    /// Why a place cannot be used, other than that what is there cannot be read.
    type Error;
    /// What a place holds.
    type Bytes: Deref<Target = [u8]>;

    /// Reads as much at a place as a copy can have, from each device that keeps the place: one, or
    /// several that should hold the same.
    fn read(&self, place: usize) -> impl Future<Output = Result<Reads<Self::Bytes>, Self::Error>>;
}

/// Two places that can be changed.
pub trait WritablePlaces: Places {
    /// The bytes of a copy, as they are written.
    type Laid;

    /// Makes a copy ready, with everything that takes memory.
    fn lay_out(&self, bytes: &[u8]) -> Result<Self::Laid, Self::Error>;

    /// Replaces what is at a place. It is durable when this finishes. When it is cut off, the place
    /// holds the old copy, the new copy, or bytes with a wrong checksum.
    fn write(
        &self,
        place: usize,
        laid: Self::Laid,
    ) -> impl Future<Output = Result<(), Self::Error>>;
}

/// What is at a place.
#[derive(Debug)]
pub enum Raw<B> {
    /// Nothing was ever written, or there is no such place.
    Blank,
    /// What is there cannot be read any more.
    Unreadable,
    /// These bytes.
    Bytes(B),
}

/// What each device that keeps a place holds there.
pub type Reads<B> = Vec<Raw<B>>;

/// What was found at both places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<C> {
    /// What is at each: of several devices that keep it, the newest that any of them holds.
    pub copies: [Decoded<C>; 2],
    /// Where devices that keep the same place hold other things.
    pub uneven: [bool; 2],
}

/// The state that counts.
#[derive(Debug, PartialEq, Eq)]
pub struct Newest<C> {
    /// The state.
    pub content: C,
    /// Which place it is from.
    pub place: usize,
    /// What is at the other one.
    pub other: Other,
    /// Where devices that keep the same place hold other things.
    pub uneven: [bool; 2],
}

/// What the copy is that does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// The same as the one that counts.
    Same,
    /// An older state: a change was cut off.
    Older,
    /// Damaged or gone, so it may have held a later state.
    Unusable,
}

/// Why there is no state that can be trusted. For copies it says what is wrong with each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// There never was one.
    Absent,
    /// At one place there never was a copy, and the other one is damaged: the first write of all
    /// was cut off, unless the device was used since.
    Unfinished([String; 2]),
    /// Both copies are damaged, or contradict each other.
    Damaged([String; 2]),
    /// A copy has this later version of its layout.
    Newer(u32),
}

/// A new state on its way to both places.
#[derive(Debug)]
pub struct Prepared<P: WritablePlaces> {
    copies: [P::Laid; 2],
}

/// Reads both copies. One that cannot be read counts as damaged.
pub async fn find<C: Content, P: Places>(places: &P) -> Result<Found<C>, P::Error> {
    let first = newest_of(places.read(0).await?);
    let second = newest_of(places.read(1).await?);
    Ok(Found {
        copies: [first.0, second.0],
        uneven: [first.1, second.1],
    })
}

/// Lays `content` out for both places. Memory may be short for the moment: that is found here, when
/// nothing has been written yet.
pub fn prepare<C: Content, P: WritablePlaces>(
    places: &P,
    content: &C,
) -> Result<Prepared<P>, P::Error> {
    let bytes = encode(content);
    Ok(Prepared {
        copies: [places.lay_out(&bytes)?, places.lay_out(&bytes)?],
    })
}

/// Makes what was prepared (with its new generation) the state; `newest` is the place of the copy
/// that counted before. Gives the place of the copy that counts now.
pub async fn commit<P: WritablePlaces>(
    places: &P,
    prepared: Prepared<P>,
    newest: usize,
) -> Result<usize, P::Error> {
    let first = 1 - newest;
    for (place, copy) in [first, newest].into_iter().zip(prepared.copies) {
        places.write(place, copy).await?;
    }
    Ok(first)
}

/// Writes the copy that is not the newest, and what a device that keeps a place has lost.
pub async fn repair<C: Content, P: WritablePlaces>(
    places: &P,
    newest: &Newest<C>,
) -> Result<(), P::Error> {
    let other = 1 - newest.place;
    // The other one first: so one is whole at any time.
    for (place, differs) in [
        (other, newest.other != Other::Same || newest.uneven[other]),
        (newest.place, newest.uneven[newest.place]),
    ] {
        if differs {
            let copy = places.lay_out(&encode(&newest.content))?;
            places.write(place, copy).await?;
        }
    }
    Ok(())
}

impl<C: Content> Found<C> {
    /// The newest state, or why there is none that can be trusted.
    pub fn newest(self) -> Result<Newest<C>, Unusable> {
        let newer = |copy: &Decoded<C>| match copy {
            Decoded::Newer(version) => Some(*version),
            _ => None,
        };
        if let Some(version) = self.copies.iter().find_map(newer) {
            return Err(Unusable::Newer(version));
        }
        let uneven = self.uneven;
        let alone = |content, place| {
            Ok(Newest {
                content,
                place,
                other: Other::Unusable,
                uneven,
            })
        };
        match self.copies {
            [Decoded::Valid(first), Decoded::Valid(second)] => choose(first, second, uneven),
            [Decoded::Valid(content), _] => alone(content, 0),
            [_, Decoded::Valid(content)] => alone(content, 1),
            [Decoded::Absent, Decoded::Absent] => Err(Unusable::Absent),
            copies => {
                let why = copies.each_ref().map(ToString::to_string);
                match copies.contains(&Decoded::Absent) {
                    true => Err(Unusable::Unfinished(why)),
                    false => Err(Unusable::Damaged(why)),
                }
            }
        }
    }

    /// The highest generation that was found, 0 if there is none, and the place that it is at.
    pub fn highest(&self) -> (u64, usize) {
        let [first, second] = self
            .copies
            .each_ref()
            .map(|copy| copy.generation().unwrap_or(0));
        match first >= second {
            true => (first, 0),
            false => (second, 1),
        }
    }
}

/// The newest of what the devices hold that keep a place, and whether they hold other things. Two
/// that call other content the newest contradict each other, and neither is it.
fn newest_of<C: Content, B: Deref<Target = [u8]>>(reads: Reads<B>) -> (Decoded<C>, bool) {
    let mut newest = (UNREADABLE, decoded(Raw::<B>::Unreadable));
    let (mut uneven, mut contradicted) = (false, false);
    for (number, read) in reads.into_iter().enumerate() {
        let (is_read, copy) = (!matches!(read, Raw::Unreadable), decoded(read));
        let differs = copy != newest.1;
        uneven |= number > 0 && differs;
        let rank = if is_read { rank(&copy) } else { UNREADABLE };
        match rank.cmp(&newest.0) {
            Ordering::Greater => (newest, contradicted) = ((rank, copy), false),
            Ordering::Equal => contradicted |= differs && matches!(copy, Decoded::Valid(_)),
            Ordering::Less => {}
        }
    }
    match contradicted {
        true => {
            let why = "same generation on another device, other content";
            (Decoded::Damaged(why.into()), true)
        }
        false => (newest.1, uneven),
    }
}

/// Of what cannot be read on one device another one that can be read tells all.
const UNREADABLE: (u8, u64) = (0, 0);

/// What counts more is higher. What a later program has written is in force, whatever others hold.
fn rank<C: Content>(copy: &Decoded<C>) -> (u8, u64) {
    match copy {
        Decoded::Absent => (1, 0),
        Decoded::Damaged(_) => (2, 0),
        Decoded::Valid(content) => (3, content.generation()),
        Decoded::Newer(version) => (4, (*version).into()),
    }
}

fn decoded<C: Content, B: Deref<Target = [u8]>>(raw: Raw<B>) -> Decoded<C> {
    match raw {
        Raw::Blank => Decoded::Absent,
        Raw::Unreadable => Decoded::Damaged("it cannot be read".into()),
        Raw::Bytes(bytes) => decode(&bytes),
    }
}

fn choose<C: Content>(first: C, second: C, uneven: [bool; 2]) -> Result<Newest<C>, Unusable> {
    let newest = |content, place, other| {
        Ok(Newest {
            content,
            place,
            other,
            uneven,
        })
    };
    match first.generation().cmp(&second.generation()) {
        Ordering::Greater => newest(first, 0, Other::Older),
        Ordering::Less => newest(second, 1, Other::Older),
        Ordering::Equal if first == second => newest(first, 0, Other::Same),
        Ordering::Equal => {
            let why = || "same generation as the other copy, other content".to_owned();
            Err(Unusable::Damaged([why(), why()]))
        }
    }
}

#[cfg(test)]
mod tests;
