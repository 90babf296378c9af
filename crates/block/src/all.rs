//! Several I/Os as one: the child I/Os that a composite device issues for one I/O. The lists are
//! kept by their core when they end, so that composites on composites need no allocation for an
//! I/O.

use std::cell::RefCell;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use flashyard_runtime::{Data, Parts, Rt};

use crate::io::Done;
use crate::{IoError, IoFuture};

/// Children for which a list keeps room.
const KEPT_CHILDREN: usize = 8;
/// Lists that a core keeps: about 1 KiB each.
const KEPT_LISTS: usize = 1024;

thread_local! {
    /// Lists that no I/O uses.
    #[expect(clippy::vec_box, reason = "a list goes to and from a future without being copied")]
    static SPARE: RefCell<Vec<Box<List>>> = const { RefCell::new(Vec::new()) };
}

/// The children of one I/O, all in flight at the same time. Up to eight cost no allocation once
/// their core has had as many lists in use.
///
/// It ends when all of them have, and fails with the first failed child, in their order.
pub struct All {
    /// Until it is dropped.
    list: Option<Box<List>>,
    rt: Rt,
}

#[derive(Default)]
struct List {
    children: Vec<Child>,
    /// Of a read: what the children read into.
    parts: Option<Parts>,
    /// Kept for its allocation.
    answers: Vec<Data>,
}

enum Child {
    InFlight(IoFuture),
    Ended(Result<Done, IoError>),
}

impl All {
    /// No children yet. What is left of them when no task waits any more runs on `rt`.
    pub(crate) fn new(rt: &Rt) -> Self {
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
        Self {
            list: Some(spare.ok().flatten().unwrap_or_default()),
            rt: rt.clone(),
        }
    }

    /// Adds a child.
    pub fn push(&mut self, io: IoFuture) {
        let child = match io.try_finish() {
            Ok(result) => Child::Ended(result),
            Err(io) => Child::InFlight(io),
        };
        self.list().children.push(child);
    }

    /// How many children there are.
    pub fn len(&self) -> usize {
        self.list.as_ref().map_or(0, |list| list.children.len())
    }

    /// Whether there are no children.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One I/O, which gives what the first child does.
    pub fn into_io(mut self) -> IoFuture {
        match self.is_in_flight() {
            true => IoFuture::all_of(self),
            false => IoFuture::ready(self.settle()),
        }
    }

    /// One read, whose children read into all of `parts` in their order.
    pub fn read_into(mut self, parts: Parts) -> IoFuture {
        self.list().parts = Some(parts);
        self.into_io()
    }

    /// Where what is left runs on.
    pub(crate) fn runtime(&self) -> &Rt {
        &self.rt
    }

    /// Whether a child has not ended.
    pub(crate) fn is_in_flight(&self) -> bool {
        let mut children = self.list.iter().flat_map(|list| &list.children);
        children.any(|child| matches!(child, Child::InFlight(_)))
    }

    /// No task waits for the children any more.
    pub(crate) fn abandon(&mut self) {
        for child in &mut self.list().children {
            if let Child::InFlight(io) = child {
                io.abandon();
            }
        }
    }

    /// Goes on with every child.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Done, IoError>> {
        let mut in_flight = false;
        for child in &mut self.list().children {
            if let Child::InFlight(io) = child {
                match Pin::new(io).poll(context) {
                    Poll::Ready(result) => *child = Child::Ended(result),
                    Poll::Pending => in_flight = true,
                }
            }
        }
        match in_flight {
            true => Poll::Pending,
            false => Poll::Ready(self.settle()),
        }
    }

    /// Its result, when all children have ended.
    fn settle(&mut self) -> Result<Done, IoError> {
        let List {
            children,
            parts,
            answers,
        } = self.list();
        for child in children.drain(..) {
            if let Child::Ended(result) = child {
                answers.push(result?.data);
            }
        }
        match parts.take() {
            Some(parts) => join(parts, answers),
            None => Ok(answers.drain(..).next().map_or(Done::EMPTY, Done::from)),
        }
    }

    fn list(&mut self) -> &mut List {
        self.list.get_or_insert_default()
    }
}

impl Drop for All {
    fn drop(&mut self) {
        let Some(mut list) = self.list.take() else {
            return;
        };
        // Before the borrow: children have lists of their own.
        list.clear();
        let keep = |spare: &RefCell<Vec<_>>| {
            let mut spare = spare.borrow_mut();
            if spare.len() < KEPT_LISTS {
                spare.push(list);
            }
        };
        // A thread that ends keeps nothing.
        let _ = SPARE.try_with(keep);
    }
}

impl List {
    fn clear(&mut self) {
        drop(mem::take(&mut self.parts));
        self.children.clear();
        self.children.shrink_to(KEPT_CHILDREN);
        self.answers.clear();
        self.answers.shrink_to(KEPT_CHILDREN);
    }
}

/// See [`IoFuture::in_batches`].
pub(crate) async fn in_batches(
    rt: Rt,
    mut children: impl Iterator<Item = IoFuture>,
) -> Result<Done, IoError> {
    loop {
        let mut batch = All::new(&rt);
        children
            .by_ref()
            .take(KEPT_CHILDREN)
            .for_each(|io| batch.push(io));
        if batch.is_empty() {
            return Ok(Done::EMPTY);
        }
        batch.into_io().await?;
    }
}

/// What a read over several parts gives.
fn join(parts: Parts, answers: &mut Vec<Data>) -> Result<Done, IoError> {
    if answers.iter().all(|data| matches!(data, Data::Zeroes(_))) {
        let bytes = answers.drain(..).map(|data| data.len()).sum();
        return Ok(Data::Zeroes(bytes).into());
    }
    let whole = parts.join(answers).ok_or(IoError::Busy)?;
    Ok(Data::Buf(whole).into())
}
