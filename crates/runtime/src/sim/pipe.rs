//! One direction of a TCP connection: bytes in order, some time after they were sent, in pieces of
//! any size.

use std::collections::VecDeque;
use std::num::NonZero;

use flashyard_time::{Duration, Rng, Time};

/// The largest piece that travels as one.
const LARGEST: usize = 64 << 10;

/// What a direction does to the bytes in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) latency: (Duration, Duration),
    /// Bytes per second.
    pub(super) bandwidth: u64,
    /// Bytes that may be sent and not yet received.
    pub(super) capacity: usize,
    pub(super) fragment: bool,
    /// Most payload of a packet, if there are packets, and what it has on the line beside that.
    pub(super) packet: Option<(NonZero<usize>, usize)>,
}

impl Line {
    /// Bytes on the line for so many of payload.
    fn wire_bytes(&self, len: usize) -> u64 {
        let overhead = self.packet.map_or(0, |(payload, overhead)| {
            len.div_ceil(payload.get()) * overhead
        });
        (len + overhead) as u64
    }
}

/// A line that several directions share.
#[derive(Debug, Default)]
pub(super) struct SharedLine {
    /// By direction: when the line will have taken its last byte. Only those that are not done
    /// with.
    busy: Vec<(u64, Time)>,
}

impl SharedLine {
    /// Sends on behalf of `who` from `start` on what takes `transfer` on an idle line, and tells
    /// when that is done. Of each other direction as much is sent in between, or what it has left.
    fn take(&mut self, who: u64, start: Time, transfer: Duration) -> Time {
        self.busy
            .retain(|(other, until)| *other != who && *until > start);
        let mut end = start + transfer;
        for (_, until) in &mut self.busy {
            let between = until.since(start).min(transfer);
            end += between;
            *until += between;
        }
        self.busy.push((who, end));
        end
    }
}

/// Bytes on their way.
#[derive(Debug)]
pub(super) struct Pipe {
    line: Line,
    /// Of the send in flight, what has found no room yet.
    waiting: VecDeque<u8>,
    flying: VecDeque<Parcel>,
    arrived: VecDeque<u8>,
    /// Pieces in which it came, since the last receive.
    pieces: u32,
    /// Sent and not received.
    held: usize,
    /// When the line will have taken the last byte.
    line_free: Time,
    /// Nothing arrives before what was sent earlier.
    last_arrival: Time,
    end: Option<End>,
}

#[derive(Debug)]
struct Parcel {
    at: Time,
    piece: Piece,
}

#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    End(End),
}

/// How a direction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Everything was sent.
    Finished,
    /// The connection was reset.
    Reset,
}

impl Pipe {
    /// An empty direction in which nothing arrives before `opens`.
    pub(super) fn new(line: Line, opens: Time) -> Self {
        Self {
            line,
            waiting: VecDeque::new(),
            flying: VecDeque::new(),
            arrived: VecDeque::new(),
            pieces: 0,
            held: 0,
            line_free: Time::ZERO,
            last_arrival: opens,
            end: None,
        }
    }

    /// Hands over bytes to be sent; [`Pipe::pump`] moves them.
    pub(super) fn offer(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
    }

    /// The send in flight is given up: what has not left yet never will.
    pub(super) fn withdraw(&mut self) {
        self.waiting.clear();
    }

    /// Whether everything offered has been accepted.
    pub(super) fn is_accepted(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Accepts as much of what was offered as there is room for; tells when each piece arrives.
    /// `shared`: the line that it has to share, and its name there.
    pub(super) fn pump(
        &mut self,
        now: Time,
        rng: &mut Rng,
        mut shared: Option<(&mut SharedLine, u64)>,
        mut arrives: impl FnMut(Time, usize),
    ) {
        loop {
            let room = self.line.capacity - self.held;
            let most = room.min(self.waiting.len()).min(LARGEST);
            if most == 0 {
                return;
            }
            let len = if self.line.fragment {
                fragment(most, rng)
            } else {
                most
            };
            let mut bytes = vec![0; len];
            take(&mut self.waiting, &mut bytes);
            self.held += len;
            let wire = Duration::from_ns(self.line.wire_bytes(len));
            let transfer = wire.scale(1_000_000_000, self.line.bandwidth);
            let start = self.line_free.max(now);
            self.line_free = match &mut shared {
                Some((line, who)) => line.take(*who, start, transfer),
                None => start + transfer,
            };
            let at = self.fly(now, Piece::Bytes(bytes), rng);
            arrives(at, len);
        }
    }

    /// Sends the end of the stream, or a reset in the place of it; tells when it arrives.
    pub(super) fn finish(&mut self, now: Time, end: End, rng: &mut Rng) -> Time {
        self.waiting.clear();
        self.fly(now, Piece::End(end), rng)
    }

    /// What has come by `now` becomes receivable. Gives the number of bytes that arrived.
    pub(super) fn deliver(&mut self, now: Time) -> usize {
        let before = self.arrived.len();
        while self.flying.front().is_some_and(|parcel| parcel.at <= now) {
            let parcel = self.flying.pop_front().expect("it has just been seen");
            match parcel.piece {
                Piece::Bytes(bytes) => {
                    self.arrived.extend(bytes);
                    self.pieces += 1;
                }
                Piece::End(end) => self.end = Some(end),
            }
        }
        self.arrived.len() - before
    }

    /// After a time in which nothing could pass: everything due arrives anew from `now` on, in
    /// order. Tells when.
    pub(super) fn resume(&mut self, now: Time, rng: &mut Rng, mut arrives: impl FnMut(Time)) {
        let mut last = now;
        for parcel in &mut self.flying {
            if parcel.at <= now {
                parcel.at = now + draw(self.line.latency, rng);
            }
            parcel.at = parcel.at.max(last);
            last = parcel.at;
            arrives(last);
        }
        self.last_arrival = self.last_arrival.max(last);
    }

    /// Whether a receive would not have to wait.
    pub(super) fn is_readable(&self) -> bool {
        !self.arrived.is_empty() || self.end.is_some()
    }

    /// Bytes that have arrived and are not received.
    pub(super) fn unread(&self) -> usize {
        self.arrived.len()
    }

    /// Whether a reset has come, even if bytes before it can still be received.
    pub(super) fn was_reset(&self) -> bool {
        self.end == Some(End::Reset)
    }

    /// Ends the stream here and now, whatever is still on its way. What has arrived stays
    /// receivable.
    pub(super) fn cut(&mut self, end: End) {
        self.held = self.arrived.len();
        self.flying.clear();
        self.waiting.clear();
        self.end.get_or_insert(end);
    }

    /// In how many pieces has come what was receivable at the last receive and was not at the one
    /// before.
    pub(super) fn take_pieces(&mut self) -> u32 {
        std::mem::take(&mut self.pieces)
    }

    /// Receives at most `into.len()` bytes of what has arrived.
    pub(super) fn receive(&mut self, into: &mut [u8], rng: &mut Rng) -> usize {
        let most = self.arrived.len().min(into.len());
        if most == 0 {
            return 0;
        }
        let len = if self.line.fragment {
            fragment(most, rng)
        } else {
            most
        };
        take(&mut self.arrived, &mut into[..len]);
        self.held -= len;
        len
    }

    fn fly(&mut self, now: Time, piece: Piece, rng: &mut Rng) -> Time {
        let sent = self.line_free.max(now);
        self.last_arrival = self.last_arrival.max(sent + draw(self.line.latency, rng));
        self.flying.push_back(Parcel {
            at: self.last_arrival,
            piece,
        });
        self.last_arrival
    }
}

/// Moves the first `into.len()` bytes out.
fn take(from: &mut VecDeque<u8>, into: &mut [u8]) {
    let (front, back) = from.as_slices();
    let cut = front.len().min(into.len());
    let (first, second) = into.split_at_mut(cut);
    first.copy_from_slice(&front[..cut]);
    second.copy_from_slice(&back[..second.len()]);
    from.drain(..into.len());
}

/// A span between the two, ends included.
pub(super) fn draw((least, most): (Duration, Duration), rng: &mut Rng) -> Duration {
    let (least, most) = (least.as_ns(), most.as_ns());
    Duration::from_ns(rng.range(least..most.max(least) + 1))
}

/// A length from 1 to `most`: half the time all of it, otherwise short ones as likely as long ones.
fn fragment(most: usize, rng: &mut Rng) -> usize {
    if rng.chance(1, 2) {
        return most;
    }
    let bits = rng.below(u64::from(most.ilog2()) + 1);
    let longest = most.min(2 << bits) as u64;
    1 + rng.below(longest) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(fragment: bool) -> Line {
        let latency = (Duration::from_us(10), Duration::from_us(50));
        Line {
            latency,
            bandwidth: 1_000_000_000,
            capacity: 1000,
            fragment,
            packet: None,
        }
    }

    fn pump(pipe: &mut Pipe, now: Time, rng: &mut Rng) -> Vec<(Time, usize)> {
        let mut arrivals = Vec::new();
        pipe.pump(now, rng, None, |at, len| arrivals.push((at, len)));
        arrivals
    }

    #[test]
    fn bytes_arrive_complete_and_in_order_however_they_are_cut() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut pipe = Pipe::new(line(true), Time::ZERO);
            let sent: Vec<u8> = (0..5000_u32).map(|n| (n * 7 + n / 256) as u8).collect();
            pipe.offer(&sent);
            let (mut now, mut got, mut pieces) = (Time::ZERO, Vec::<u8>::new(), 0);
            while got.len() < sent.len() {
                pump(&mut pipe, now, &mut rng);
                now += Duration::from_us(rng.below(30));
                pipe.deliver(now);
                let mut into = [0; 700];
                let n = pipe.receive(&mut into, &mut rng);
                got.extend(&into[..n]);
                pieces += usize::from(n > 0);
            }
            assert!(got == sent && pieces > 8, "seed {seed}: {pieces} pieces");
            assert!(pipe.is_accepted() && !pipe.is_readable());
        }
    }

    #[test]
    fn takes_no_more_than_its_capacity_until_received() {
        let mut rng = Rng::new(3);
        let mut pipe = Pipe::new(line(false), Time::ZERO);
        pipe.offer(&[1; 2500]);
        let arrivals = pump(&mut pipe, Time::ZERO, &mut rng);
        assert_eq!(arrivals.iter().map(|(_, len)| len).sum::<usize>(), 1000);
        let at = arrivals[0].0;
        assert!(
            at >= Time::from_ns(11_000),
            "1000 bytes take 1 us, then at least 10 us"
        );
        assert_eq!(pipe.deliver(at), 1000);
        assert!(pump(&mut pipe, at, &mut rng).is_empty() && !pipe.is_accepted());
        assert_eq!(pipe.receive(&mut [0; 600], &mut rng), 600);
        assert_eq!(pump(&mut pipe, at, &mut rng)[0].1, 600);
        pipe.withdraw();
        assert!(pipe.is_accepted());
    }

    #[test]
    fn packets_have_more_than_their_payload_on_the_line() {
        let packet = Some((NonZero::new(100).expect("not zero"), 50));
        let latency = (Duration::from_us(10), Duration::from_us(10));
        let packets = Line {
            latency,
            packet,
            ..line(false)
        };
        let mut pipe = Pipe::new(packets, Time::ZERO);
        pipe.offer(&[1; 101]);
        let arrivals = pump(&mut pipe, Time::ZERO, &mut Rng::new(1));
        assert_eq!(arrivals, [(Time::from_ns(201 + 10_000), 101)]);
        pipe.deliver(arrivals[0].0);
        assert_eq!((pipe.take_pieces(), pipe.take_pieces()), (1, 0));
    }

    #[test]
    fn a_shared_line_serves_all_alike_and_no_more_than_it_can() {
        let mut line = SharedLine::default();
        let (at, span) = (Time::from_ns, Duration::from_ns);
        assert_eq!(line.take(1, at(0), span(1000)), at(1000));
        assert_eq!(line.take(2, at(100), span(50)), at(200), "one each in turn");
        // What the first sends next waits for its own last byte, which the second has delayed.
        assert_eq!(line.take(1, at(1050), span(1000)), at(2050));
        assert_eq!(line.take(2, at(2040), span(500)), at(2550), "10 were left");
        assert_eq!(line.take(3, at(9000), span(5)), at(9005));
    }

    #[test]
    fn the_end_comes_after_the_bytes() {
        let mut rng = Rng::new(4);
        let mut pipe = Pipe::new(line(false), Time::ZERO);
        pipe.offer(&[5; 10]);
        pump(&mut pipe, Time::ZERO, &mut rng);
        let at = pipe.finish(Time::ZERO, End::Reset, &mut rng);
        pipe.deliver(at);
        assert!(pipe.was_reset() && pipe.unread() == 10);
        pipe.receive(&mut [0; 20], &mut rng);
        assert!(pipe.is_readable() && pipe.unread() == 0);
    }

    #[test]
    fn a_pause_delays_and_keeps_the_order() {
        let mut rng = Rng::new(5);
        let mut pipe = Pipe::new(
            Line {
                fragment: true,
                ..line(true)
            },
            Time::ZERO,
        );
        let sent: Vec<u8> = (0..250).collect();
        pipe.offer(&sent);
        pump(&mut pipe, Time::ZERO, &mut rng);
        let healed = Time::ZERO + Duration::from_secs(1);
        let mut times = Vec::new();
        pipe.resume(healed, &mut rng, |at| times.push(at));
        assert!(times.is_sorted() && times[0] >= healed + Duration::from_us(10));
        for at in times {
            pipe.deliver(at);
        }
        let mut got: Vec<u8> = Vec::new();
        while pipe.is_readable() {
            let mut into = [0; 64];
            let n = pipe.receive(&mut into, &mut rng);
            got.extend(&into[..n]);
        }
        assert_eq!(got, sent);
    }
}
