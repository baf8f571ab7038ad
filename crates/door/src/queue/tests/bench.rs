//! A look at the cost of one request through the queue: `cargo test --release -- --ignored
//! --nocapture queue_cost`.

use std::time::Instant;

use super::*;

#[test]
#[ignore = "prints a measurement"]
fn queue_cost() {
    let (stage, _) = stage(&StageTable {
        max_queue: 2000,
        ..table(&[replica("a", 32), replica("b", 32)])
    });
    let rounds = 1_000_000u64;
    let begin = Instant::now();
    for now in 0..rounds {
        let mut permit = admit(&stage, Ask::default(), now);
        permit.first_byte(now);
        permit.finish(Outcome::Completed, now);
    }
    println!(
        "admitted at once: {} ns",
        begin.elapsed().as_nanos() as u64 / rounds
    );
    let mut permits: std::collections::VecDeque<_> = (0..64)
        .map(|_| admit(&stage, Ask::default(), rounds))
        .collect();
    let mut tickets: std::collections::VecDeque<_> = (0..100)
        .map(|_| stage.submit(Ask::default(), rounds).unwrap())
        .collect();
    let begin = Instant::now();
    for now in rounds..2 * rounds {
        tickets.push_back(stage.submit(Ask::default(), now).unwrap());
        permits.pop_front().unwrap().finish(Outcome::Completed, now);
        permits.push_back(granted(&mut tickets.pop_front().unwrap(), now));
    }
    println!(
        "through a queue of 100: {} ns",
        begin.elapsed().as_nanos() as u64 / rounds
    );
}
