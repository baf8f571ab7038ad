//! What clients do: give up, try again, or leave for good; and what the door refuses.

use crate::endpoint::{Endpoint, Serving, Timer};
use crate::engine::Sim;
use crate::events::Kind;
use crate::request::{Request, State};

/// How a client ends that was not served.
#[derive(Clone, Copy, Debug)]
enum Failure {
    Refused,
    Expired,
    TimedOut,
}

impl Sim {
    #[inline]
    pub(crate) fn arm_time_out(&mut self, index: u32, request: u32) {
        let endpoint = &mut self.endpoints[index as usize];
        if endpoint.timeout_ns == u64::MAX {
            return;
        }
        let due_ns = self.now_ns + endpoint.timeout_ns;
        let generation = self.requests[request].generation;
        endpoint.timeouts.push_back(Timer {
            due_ns,
            request,
            generation,
        });
        if !endpoint.is_timeout_armed {
            endpoint.is_timeout_armed = true;
            self.events.push(due_ns, Kind::TimeOut, index, 0);
        }
    }

    #[inline]
    pub(crate) fn arm_expiry(&mut self, index: u32, request: u32) {
        let endpoint = &mut self.endpoints[index as usize];
        if endpoint.max_wait_ns == u64::MAX {
            return;
        }
        let due_ns = self.now_ns + endpoint.max_wait_ns;
        let generation = self.requests[request].generation;
        endpoint.expiries.push_back(Timer {
            due_ns,
            request,
            generation,
        });
        if !endpoint.is_expiry_armed {
            endpoint.is_expiry_armed = true;
            self.events.push(due_ns, Kind::Expiry, index, 0);
        }
    }

    pub(crate) fn time_outs(&mut self, index: u32) {
        self.endpoints[index as usize].touch_requests(self.now_ns);
        while let Some(&timer) = self.endpoints[index as usize].timeouts.front() {
            let pending = self.is_unanswered(timer);
            if pending && timer.due_ns > self.now_ns {
                break;
            }
            self.endpoints[index as usize].timeouts.pop_front();
            if pending {
                self.give_up(timer.request);
            }
        }
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.is_timeout_armed = !endpoint.timeouts.is_empty();
        if let Some(front) = endpoint.timeouts.front() {
            self.events.push(front.due_ns, Kind::TimeOut, index, 0);
        }
        self.dispatch(index);
        self.endpoints[index as usize].changed(self.now_ns);
    }

    /// Will the client of this timer still wait for its first byte when it is due?
    fn is_unanswered(&self, timer: Timer) -> bool {
        let request = &self.requests[timer.request];
        request.generation == timer.generation
            && matches!(request.state, State::Queued | State::Running)
            && !request.dead
            && request.first_byte_ns > timer.due_ns
    }

    pub(crate) fn expiries(&mut self, index: u32) {
        self.endpoints[index as usize].touch_requests(self.now_ns);
        while let Some(&timer) = self.endpoints[index as usize].expiries.front() {
            let request = self.requests[timer.request];
            let waits = request.generation == timer.generation && request.state == State::Queued;
            if waits && timer.due_ns > self.now_ns {
                break;
            }
            self.endpoints[index as usize].expiries.pop_front();
            if waits {
                self.drop_queued(timer.request);
                if !request.dead {
                    self.try_again_or(request, Failure::Expired);
                }
            }
        }
        let endpoint = &mut self.endpoints[index as usize];
        endpoint.is_expiry_armed = !endpoint.expiries.is_empty();
        if let Some(front) = endpoint.expiries.front() {
            self.events.push(front.due_ns, Kind::Expiry, index, 0);
        }
        endpoint.changed(self.now_ns);
    }

    fn give_up(&mut self, index: u32) {
        let request = self.requests[index];
        if self.endpoints[request.endpoint as usize].serve_dead_work {
            self.requests[index].dead = true;
        } else if request.state == State::Queued {
            self.drop_queued(index);
        } else {
            self.cancel_running(index);
        }
        self.try_again_or(request, Failure::TimedOut);
    }

    /// The place in the queue goes when it comes to the head; the count goes now.
    fn drop_queued(&mut self, index: u32) {
        self.left_unserved(index);
        let endpoint = self.requests[index].endpoint;
        self.requests[index].state = State::Gone;
        let endpoint = &mut self.endpoints[endpoint as usize];
        endpoint.queued -= 1;
        while let Some(&head) = endpoint.queue.front() {
            if self.requests[head].state != State::Gone {
                break;
            }
            endpoint.queue.pop_front();
            self.requests.remove(head);
        }
    }

    fn cancel_running(&mut self, index: u32) {
        let request = self.requests[index];
        self.left_unserved(index);
        let stats = &mut self.endpoints[request.endpoint as usize].stats;
        let service_ns = u128::from(self.now_ns - request.begun_ns);
        stats.service_ns += service_ns;
        stats.wasted_ns += service_ns;
        if matches!(
            self.endpoints[request.endpoint as usize].serving,
            Serving::Batch(_)
        ) {
            self.batch_forget(index);
        }
        self.requests.remove(index);
        self.release(request.endpoint, request.replica);
    }

    fn left_unserved(&mut self, index: u32) {
        let request = &self.requests[index];
        let stats = &mut self.endpoints[request.endpoint as usize].stats;
        stats.sojourn_ns += u128::from(self.now_ns - request.arrived_ns);
        stats.departures += 1;
    }

    /// The door says no.
    pub(crate) fn refuse(&mut self, index: u32) {
        let request = self.requests[index];
        self.endpoints[request.endpoint as usize].stats.departures += 1;
        self.requests.remove(index);
        self.try_again_or(request, Failure::Refused);
    }

    /// No replica could ever hold it: another attempt would change nothing.
    pub(crate) fn refuse_for_good(&mut self, index: u32) {
        let endpoint = self.requests[index].endpoint;
        let stats = &mut self.endpoints[endpoint as usize].stats;
        stats.departures += 1;
        stats.refused += 1;
        self.requests.remove(index);
    }

    fn try_again_or(&mut self, failed: Request, failure: Failure) {
        let Endpoint {
            retries,
            backoff,
            client_stream,
            stats,
            ..
        } = &mut self.endpoints[failed.endpoint as usize];
        if failed.attempt < *retries {
            let at_ns = self.now_ns + backoff.sample_ns(client_stream);
            let Request {
                endpoint,
                prompt,
                output,
                trace_index,
                ..
            } = failed;
            let again = Request {
                client_ns: failed.client_ns,
                attempt: failed.attempt + 1,
                state: State::Backoff,
                ..Request::new(endpoint, at_ns, prompt, output, trace_index)
            };
            let index = self.requests.insert(again);
            self.events.push(at_ns, Kind::Retry, index, 0);
            return;
        }
        match failure {
            Failure::Refused => stats.refused += 1,
            Failure::Expired => stats.expired += 1,
            Failure::TimedOut => stats.timed_out += 1,
        }
    }
}
