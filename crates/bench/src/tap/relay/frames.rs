//! Where the client's bytes are cut into requests, and the server's into answers.
//!
//! The half of [`Relay`] that reads no socket: from a lane's input to its queue.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    super::{
        counts::add,
        exchange::{After, Answerer, Exchange, Fate, Marks, busy_answer},
        faults::{Ending, Plan},
        framing::{AnswerHead, AnswerKind, Method, RequestHead, read_answer, read_request},
        lane::Item,
    },
    Answers, Asks, EXCHANGES_MAX, End, Relay,
};

impl Relay {
    /// Takes requests out of what the client sent.
    pub(super) fn frame_requests(&mut self) -> Result<(), End> {
        while !self.up.input.is_empty() {
            match &mut self.asks {
                Asks::Head => {
                    if self.exchanges.len() >= EXCHANGES_MAX || !self.frame_request_head()? {
                        return Ok(());
                    }
                }
                Asks::Body(body, fate) => {
                    let Ok(run) = body.run(&self.up.input) else {
                        self.turn_opaque();
                        continue;
                    };
                    let fate = *fate;
                    let bytes = self.up.input.split_to(run.bytes).freeze();
                    match (fate, run.is_payload) {
                        (Fate::Swallow, _) => {}
                        (Fate::Forward, true) => self.up.push(Item::Payload(bytes)),
                        (Fate::Forward, false) => self.up.push(Item::Framing(bytes)),
                    }
                    if run.is_last {
                        self.request_ended(fate);
                    }
                }
                Asks::Paused => return Ok(()),
                Asks::Opaque => {
                    let bytes = self.up.input.split().freeze();
                    self.up.push(Item::Framing(bytes));
                }
            }
        }
        Ok(())
    }

    /// Takes the head of a request; false when it is not all there.
    fn frame_request_head(&mut self) -> Result<bool, End> {
        let head = match read_request(&self.up.input) {
            Ok(Some(head)) => head,
            // A head that ends in its middle is the server's to refuse.
            Ok(None) if self.up.has_ended => {
                self.turn_opaque();
                return Ok(true);
            }
            Ok(None) if self.up.input.len() < self.shared.head_bytes_max => return Ok(false),
            Ok(None) | Err(_) => {
                self.turn_opaque();
                return Ok(true);
            }
        };
        self.in_force = self.shared.in_force();
        self.set_paces();
        let plan = self.shared.plan(&self.in_force);
        self.shared.counters.request(head.method);
        if plan.end == Ending::ResetRequest {
            add(&self.shared.counters.faults.reset_request, 1);
            return Err(End::Reset);
        }
        self.begin_exchange(head, plan);
        Ok(true)
    }

    fn begin_exchange(&mut self, head: RequestHead, plan: Plan) {
        let bytes = self.up.input.split_to(head.head_bytes).freeze();
        let (fate, answerer) = match (plan.end, head.expects_continue) {
            (Ending::Busy, true) => {
                let at = Instant::now() + plan.hold;
                (Fate::Swallow, Answerer::TapAt(at, After::Close))
            }
            (Ending::Busy, false) => (Fate::Swallow, Answerer::Tap),
            _ => {
                self.up.push(Item::Framing(bytes));
                (Fate::Forward, Answerer::Server)
            }
        };
        self.exchanges.push_back(Exchange {
            method: head.method,
            plan,
            answerer,
        });
        let has_no_body = head.body.length() == Some(0);
        self.asks = match head.method {
            Method::Connect if fate == Fate::Forward => Asks::Paused,
            _ => Asks::Body(head.body, fate),
        };
        if has_no_body && matches!(self.asks, Asks::Body(..)) {
            self.request_ended(fate);
        }
    }

    fn request_ended(&mut self, fate: Fate) {
        self.asks = Asks::Head;
        if let Some(exchange) = self.exchanges.back_mut()
            && fate == Fate::Swallow
            && exchange.answerer == Answerer::Tap
        {
            let at = Instant::now() + exchange.plan.hold;
            exchange.answerer = Answerer::TapAt(at, After::NextRequest);
        }
    }

    /// Takes answers out of what the server sent, and puts the tap's own between them; whether a
    /// request was answered, which makes room for another.
    pub(super) fn frame_answers(&mut self) -> bool {
        let exchange_count = self.exchanges.len();
        loop {
            match &mut self.answers {
                Answers::Head => {
                    if !self.answer_busy() && !self.frame_answer_head() {
                        break;
                    }
                }
                Answers::Body(body, marks) => {
                    if self.down.input.is_empty() {
                        break;
                    }
                    let Some(limit) = marks.strike(&mut self.down, &self.shared) else {
                        self.answers = Answers::Last;
                        continue;
                    };
                    let visible = self.down.input.len().min(limit);
                    let Ok(run) = body.run(&self.down.input[..visible]) else {
                        self.turn_opaque();
                        continue;
                    };
                    let bytes = self.down.input.split_to(run.bytes).freeze();
                    if run.is_payload {
                        marks.passed_bytes += run.bytes as u64;
                        self.down.push(Item::Payload(bytes));
                    } else {
                        self.down.push(Item::Framing(bytes));
                    }
                    if run.is_last {
                        self.answers = Answers::Head;
                    }
                }
                Answers::Opaque => {
                    let bytes = self.down.input.split().freeze();
                    self.down.push(Item::Framing(bytes));
                    break;
                }
                Answers::Last => {
                    self.down.input.clear();
                    break;
                }
            }
        }
        self.exchanges.len() != exchange_count
    }

    /// Answers the request in front, if that is the tap's to do.
    fn answer_busy(&mut self) -> bool {
        let Some(Exchange {
            answerer: Answerer::TapAt(at, after),
            method,
            ..
        }) = self.exchanges.front()
        else {
            return false;
        };
        let (at, after) = (*at, *after);
        let counters = &self.shared.counters;
        add(&counters.faults.busy, 1);
        counters.answer(503);
        let (head, body) = busy_answer(*method, after);
        self.down.push(Item::Until(at));
        self.down.push(Item::Framing(head));
        self.down.push(Item::Payload(body));
        self.exchanges.pop_front();
        if after == After::Close {
            self.answers = Answers::Last;
        }
        true
    }

    /// Takes the head of an answer; false when it is not all there, or not yet its turn.
    fn frame_answer_head(&mut self) -> bool {
        let front = self.exchanges.front();
        if self.down.input.is_empty() || front.is_some_and(|e| e.answerer != Answerer::Server) {
            return false;
        }
        let method = front.map_or(Method::Get, |exchange| exchange.method);
        let head = match read_answer(&self.down.input, method) {
            Ok(Some(head)) => head,
            Ok(None)
                if !self.down.has_ended && self.down.input.len() < self.shared.head_bytes_max =>
            {
                return false;
            }
            Ok(None) | Err(_) => {
                self.turn_opaque();
                return true;
            }
        };
        match head.kind {
            AnswerKind::Interim => {
                self.shared.counters.answer(head.status);
                let bytes = self.down.input.split_to(head.head_bytes).freeze();
                self.down.push(Item::Framing(bytes));
            }
            AnswerKind::Tunnel => {
                self.shared.counters.answer(head.status);
                self.exchanges.pop_front();
                self.turn_opaque();
            }
            AnswerKind::Final(_) => self.begin_answer(head),
        }
        true
    }

    fn begin_answer(&mut self, head: AnswerHead) {
        let AnswerKind::Final(body) = head.kind else {
            return;
        };
        let plan = match self.exchanges.pop_front() {
            Some(exchange) => {
                if exchange.method == Method::Connect {
                    self.asks = Asks::Head;
                }
                exchange.plan
            }
            None => Plan::default(),
        };
        let faults = &self.shared.counters.faults;
        if plan.hold > Duration::ZERO {
            self.down.push(Item::Until(self.in_force.leaves(plan.hold)));
        }
        if plan.end == Ending::ResetAnswer {
            add(&faults.reset_answer, 1);
            self.down.push(Item::Cut);
            self.answers = Answers::Last;
            return;
        }
        if plan.is_slow {
            add(&faults.slow, 1);
        }
        self.shared.counters.answer(head.status);
        let bytes = self.down.input.split_to(head.head_bytes).freeze();
        self.down.push(Item::Framing(bytes));
        self.answers = match body.length() {
            Some(0) => Answers::Head,
            length => Answers::Body(body, Marks::of(&plan, length)),
        };
    }
}
