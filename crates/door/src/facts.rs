//! What a request's head says about its place in the queue.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use http::{HeaderMap, HeaderName};

use crate::auth;

use crate::clock::recent_ns;
use crate::forward::{DEADLINE_MS, PARENT};
use crate::io::link::Origin;
use crate::queue::Ask;

const PRIORITY: HeaderName = HeaderName::from_static("x-preroll-priority");
const SESSION: HeaderName = HeaderName::from_static("x-preroll-session");
/// The OpenAI SDK's and the common one; seconds to the first byte.
static TIMEOUTS_S: [HeaderName; 2] = [
    HeaderName::from_static("x-stainless-timeout"),
    HeaderName::from_static("x-request-timeout"),
];
/// A time-out longer than a day is none.
const LONGEST_S: f64 = 86_400.0;

/// The fields that are read, found in one walk over the head.
#[derive(Default)]
struct Said<'a> {
    parent: Option<&'a str>,
    priority: Option<&'a str>,
    session: Option<&'a str>,
    deadline_ms: Option<&'a str>,
    timeout_s: Option<f64>,
}

impl<'a> Said<'a> {
    fn of(headers: &'a HeaderMap) -> Said<'a> {
        let mut said = Said::default();
        for (name, value) in headers {
            // One letter tells most fields apart from all of these.
            if !name.as_str().starts_with("x-") {
                continue;
            }
            let text = value.to_str().ok().map(str::trim);
            let slot = if *name == PARENT {
                &mut said.parent
            } else if *name == PRIORITY {
                &mut said.priority
            } else if *name == SESSION {
                &mut said.session
            } else if *name == DEADLINE_MS {
                &mut said.deadline_ms
            } else {
                if TIMEOUTS_S.contains(name) {
                    said.bound(text);
                }
                continue;
            };
            *slot = slot.or(text);
        }
        said
    }

    fn bound(&mut self, text: Option<&str>) {
        let given = text.and_then(|text| text.parse::<f64>().ok());
        let given = given.filter(|s| (0.0..LONGEST_S).contains(s));
        self.timeout_s = [self.timeout_s, given]
            .into_iter()
            .flatten()
            .reduce(f64::min);
    }
}

/// Keys of the hash of session names: a stranger cannot make two names meet.
static SESSION_KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The conversation that a request says it belongs to; a name that is too long or could break a log
/// line is none.
pub fn session(headers: &HeaderMap) -> Option<&str> {
    auth::request_id(headers.get(&SESSION)?.as_bytes())
}

/// What the queue knows a session by.
pub fn session_key(name: &str) -> u64 {
    SESSION_KEYS.hash_one(name)
}

/// The wish for a slot, from the head alone. `route_timeout_ms` bounds the whole where the client
/// sets no deadline.
pub fn ask(
    headers: &HeaderMap,
    origin: Origin,
    route_priority: i32,
    route_timeout_ms: Option<u64>,
    parent_priority: impl Fn(&str) -> Option<i32>,
) -> Ask {
    let now = recent_ns();
    let after_ms = |ms: u64| now.saturating_add(ms.saturating_mul(1_000_000));
    let said = Said::of(headers);
    let parent = said.parent.filter(|_| origin == Origin::Internal);
    // Only a parent that holds a slot now is one; a session holds none.
    let parent = parent.and_then(parent_priority);
    let given = said.priority.and_then(|value| value.parse().ok());
    let deadline_ms = said.deadline_ms.and_then(|value| value.parse::<u64>().ok());
    let session = said
        .session
        .and_then(|name| auth::request_id(name.as_bytes()));
    Ask {
        priority: parent.or(given).unwrap_or(route_priority),
        holds_parent: parent.is_some(),
        tokens: 0,
        session: session.map(session_key),
        first_byte_deadline_ns: said.timeout_s.map(|s| now + (s * 1e9) as u64),
        deadline_ns: deadline_ms.or(route_timeout_ms).map(after_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask_of(fields: &[(&'static str, &str)], origin: Origin) -> Ask {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.insert(*name, value.parse().unwrap());
        }
        ask(&headers, origin, 1, Some(5_000), |id| {
            (id == "p").then_some(7)
        })
    }

    #[test]
    fn the_shortest_client_timeout_bounds_the_first_byte() {
        let before = recent_ns();
        let fields = [("x-stainless-timeout", "600"), ("x-request-timeout", "2.5")];
        let first_byte = ask_of(&fields, Origin::Public)
            .first_byte_deadline_ns
            .unwrap();
        assert!((2_500_000_000..3_500_000_000).contains(&(first_byte - before)));
        for nonsense in ["-1", "nan", "inf", "x", ""] {
            let ask = ask_of(&[("x-request-timeout", nonsense)], Origin::Public);
            assert_eq!(ask.first_byte_deadline_ns, None, "{nonsense}");
        }
    }

    #[test]
    fn an_explicit_deadline_goes_before_the_routes() {
        let before = recent_ns();
        let route = ask_of(&[], Origin::Public).deadline_ns.unwrap();
        let own = ask_of(&[("x-preroll-deadline-ms", "100")], Origin::Public)
            .deadline_ns
            .unwrap();
        assert!(route - before >= 5_000_000_000 && own - before < 5_000_000_000);
    }

    #[test]
    fn a_parent_is_believed_on_the_internal_listener_only() {
        let call = [("x-preroll-parent", "p")];
        let internal = ask_of(&call, Origin::Internal);
        assert_eq!((internal.holds_parent, internal.priority), (true, 7));
        let public = ask_of(&call, Origin::Public);
        assert_eq!((public.holds_parent, public.priority), (false, 1));
        let stranger = ask_of(&[("x-preroll-parent", "q")], Origin::Internal);
        assert_eq!((stranger.holds_parent, stranger.priority), (false, 1));
    }

    #[test]
    fn a_session_is_known_by_its_name_and_a_name_that_is_none_is_ignored() {
        let of = |name| ask_of(&[("x-preroll-session", name)], Origin::Public).session;
        assert_eq!(of("chat-1"), of("chat-1"));
        assert!(of("chat-1").is_some() && of("chat-1") != of("chat-2"));
        for name in ["", "a b", "a\"b", &"a".repeat(129)] {
            assert_eq!(of(name), None, "{name:?}");
        }
    }

    #[test]
    fn the_clients_priority_goes_before_the_routes() {
        assert_eq!(
            ask_of(&[("x-preroll-priority", "-3")], Origin::Public).priority,
            -3
        );
        assert_eq!(
            ask_of(&[("x-preroll-priority", "9999999999")], Origin::Public).priority,
            1
        );
    }
}
