//! What a request meets first: the door's own answers, then the way to a replica.

use std::rc::Rc;

use http::header::HeaderValue;
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::{Value, json};

use crate::clock::now_ns;
use crate::door::{Door, Phase};
use crate::forward;
use crate::io::link::Link;
use crate::proxy;
use crate::reply::{self, OutBody};
use crate::routes::{Routing, StageHandle};

/// Answers one request; dropped when the client leaves.
pub async fn answer(
    door: &Rc<Door>,
    link: &Rc<Link>,
    request: Box<Request<Incoming>>,
) -> Response<OutBody> {
    let request_id = forward::request_id(request.headers());
    let id = request_id.value().clone();
    let mut response = match local(door, link, &request) {
        Some(response) => response,
        None => proxy::answer(door, link, request, request_id).await,
    };
    response.headers_mut().insert(forward::REQUEST_ID, id);
    if door.phase.get() != Phase::Serving {
        response
            .headers_mut()
            .insert("connection", HeaderValue::from_static("close"));
    }
    link.is_answering.set(true);
    response
}

/// The few paths that the door answers itself.
fn local(door: &Door, link: &Rc<Link>, request: &Request<Incoming>) -> Option<Response<OutBody>> {
    let path = request.uri().path();
    // One look keeps the way of every other request short.
    if !path.starts_with("/healthz") && !path.starts_with("/readyz") {
        return None;
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return None;
    }
    let routing = door.routing();
    match path {
        "/healthz" => Some(reply::json(link, StatusCode::OK, &json!({"status": "ok"}))),
        "/readyz" => Some(readyz(door, link, &routing)),
        _ => {
            let name = path.strip_prefix("/readyz/")?;
            Some(readyz_stage(door, link, &routing, name))
        }
    }
}

fn readyz(door: &Door, link: &Rc<Link>, routing: &Routing) -> Response<OutBody> {
    let now = now_ns();
    let can_serve =
        |handle: &StageHandle| handle.stage.is_ready(now) || handle.table.start.is_some();
    let is_serving = door.phase.get() == Phase::Serving;
    let is_ready =
        is_serving && routing.tables.version > 0 && routing.stages.values().all(|h| can_serve(h));
    let stages = routing.stages.iter();
    let stages: serde_json::Map<String, Value> = stages
        .map(|(name, handle)| (name.clone(), handle.stage.is_ready(now).into()))
        .collect();
    let status = if is_ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let value = json!({"ready": is_ready, "draining": !is_serving, "stages": stages});
    reply::json(link, status, &value)
}

fn readyz_stage(door: &Door, link: &Rc<Link>, routing: &Routing, name: &str) -> Response<OutBody> {
    let Some(handle) = routing.stages.get(name) else {
        let known: Vec<&String> = routing.stages.keys().collect();
        let message = format!("stage {name:?} is not in the tables: one of {known:?}");
        return reply::error(link, StatusCode::NOT_FOUND, "not_found", &message);
    };
    let is_ready = door.phase.get() == Phase::Serving && handle.stage.is_ready(now_ns());
    let status = if is_ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    reply::json(link, status, &json!({"ready": is_ready}))
}

/// `/v1/models`, or one of them; behind authentication, as it names what is served.
pub fn models(link: &Rc<Link>, routing: &Routing, path: &str) -> Option<Response<OutBody>> {
    let entry =
        |id: &str| json!({"id": id, "object": "model", "created": 0, "owned_by": "preroll"});
    let rest = path.strip_prefix("/v1/models")?;
    if rest.is_empty() {
        let data: Vec<Value> = routing.model_names().into_iter().map(entry).collect();
        let value = json!({"object": "list", "data": data});
        return Some(reply::json(link, StatusCode::OK, &value));
    }
    let name = rest.strip_prefix('/')?;
    routing.by_model(name)?;
    Some(reply::json(link, StatusCode::OK, &entry(name)))
}
