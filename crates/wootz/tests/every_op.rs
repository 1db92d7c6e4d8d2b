//! Every operation, on every device, in every dtype and layout, with its gradients.
//!
//! `WOOTZ_OPS=softmax,exp` restricts a run to some operations; the table is then not written.
//! `WOOTZ_SEED=1` draws other random numbers than usual.
//! `WOOTZ_FAILURES=FILE` names a file for what failed, all of it: see `note_failures`.
//! Without the `gpu` feature there is the CPU's part only: for a build with optimised kernels.
#![allow(missing_docs)]
#![cfg_attr(not(feature = "gpu"), allow(dead_code))]

mod harness;

use std::collections::BTreeSet;
#[cfg(feature = "gpu")]
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(feature = "gpu")]
use harness::gpu::Devices;
#[cfg(feature = "gpu")]
use harness::report::Report;
use harness::watchdog::Watchdog;
use harness::{Failure, Log, Subject};

/// The subjects to run: all, or those of the operations asked for.
fn chosen_subjects() -> Vec<Subject> {
    let entries = wootz::ops::registered();
    check_names(&entries);
    let mut subjects = harness::subjects(entries);
    subjects.retain(is_chosen);
    subjects
}

fn is_chosen(subject: &Subject) -> bool {
    let wanted = std::env::var("WOOTZ_OPS").ok();
    wanted.is_none_or(|list| list.split(',').any(|op| op == subject.op))
}

/// Those, and what users make of operations.
#[cfg(feature = "gpu")]
fn subjects_as_metal() -> Vec<Subject> {
    let networks = harness::networks::subjects().into_iter().filter(is_chosen);
    chosen_subjects().into_iter().chain(networks).collect()
}

fn on_cpu(subjects: &[Subject]) -> Vec<Log> {
    wootz::set_threads(2);
    let watchdog = Watchdog::start();
    let check = |subject| {
        watchdog.case(subject, "CPU");
        harness::cpu::check(subject)
    };
    subjects.iter().map(check).collect()
}

#[cfg(not(feature = "gpu"))]
#[test]
fn every_operation_is_right_on_the_cpu() {
    let subjects = chosen_subjects();
    let logs = on_cpu(&subjects);
    let checks: usize = logs.iter().map(|log| log.checks).sum();
    println!("{} operations, {checks} checks", count_names(&subjects));
    let failures: Vec<&Failure> = logs.iter().flat_map(|log| &log.failures).collect();
    let line =
        |failure: &&Failure| format!("{}: {}: {}", failure.op, failure.place, failure.message);
    let text: Vec<String> = failures.iter().take(100).map(line).collect();
    assert!(failures.is_empty(), "{}\n{} failures", text.join("\n"), failures.len());
}

#[cfg(feature = "gpu")]
#[test]
fn every_operation_is_right_on_every_device() {
    let subjects = chosen_subjects();
    let devices = harness::gpu::devices();
    let mut report = Report::default();
    subjects.iter().for_each(|subject| report.subject(subject));
    let (cpu, gpu) = std::thread::scope(|scope| {
        let cpu = scope.spawn(|| on_cpu(&subjects));
        let gpu = scope.spawn(|| match &devices {
            Some(devices) => on_gpu(&subjects, devices),
            None => Vec::new(),
        });
        (cpu.join().unwrap(), gpu.join().unwrap())
    });
    cpu.into_iter().for_each(|log| report.add(log, None));
    gpu.into_iter().for_each(|(log, work)| report.add(log, work));
    let all = std::env::var_os("WOOTZ_OPS").is_none();
    if let Some(devices) = &devices {
        report.failures.extend(kernel_texts(devices));
        report.failures.extend(report.not_kernels(all));
    }
    report.failures.extend(missing_references(&subjects));
    report.failures.extend(report.untransformed());

    println!("{} operations, {} checks", count_names(&subjects), report.checks());
    if all && devices.is_some() {
        let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        std::fs::write(folder.join("wootz-ops.md"), report.table()).unwrap();
    }
    note_failures(report.checks(), report.failures.iter());
    assert!(
        report.failures.is_empty(),
        "{}\n{} failures",
        report.failures_text(6),
        report.failures.len()
    );
}

#[cfg(feature = "gpu")]
fn on_gpu(subjects: &[Subject], devices: &Devices) -> Vec<(Log, Option<harness::gpu::Work>)> {
    let watchdog = Watchdog::start();
    let check = |subject| {
        watchdog.case(subject, "GPU");
        let bytes = harness::bytes::check(subject, &devices.plain);
        [harness::gpu::check(subject, devices), (bytes, None)]
    };
    subjects.iter().flat_map(check).collect()
}

/// Every operation as the MSL that Apple's driver would be given. `WOOTZ_METAL_SIM=full` runs every
/// case and not only those that bring a kernel of their own.
#[cfg(feature = "gpu")]
#[test]
#[ignore = "takes minutes and needs clang: cargo xtask test --metal-sim"]
fn every_kernel_is_right_as_metal() {
    wootz::set_threads(1);
    let full = std::env::var("WOOTZ_METAL_SIM").is_ok_and(|value| value == "full");
    let outcome = match harness::metal::check_all(&subjects_as_metal(), full) {
        Ok(outcome) => outcome,
        Err(reason) if !wootz::testing::ci() => {
            eprintln!("SKIPPED: kernels as Metal: {reason}");
            return;
        }
        Err(reason) => panic!("kernels must run as Metal in CI: {reason}"),
    };
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let harness::metal::Outcome { summary, table, traffic, .. } = &outcome;
    let only =
        std::env::var("WOOTZ_OPS").map_or_else(|_| String::new(), |ops| format!("ONLY {ops}: "));
    println!("{}", traffic.moved_table());
    let memory = format!(
        "## Bytes moved\n\n{}\n## Memory\n\n{}\n\n{}",
        traffic.moved_table(),
        traffic.summary(),
        traffic.table()
    );
    let text = format!("{only}{summary}\n\n{table}\n{memory}");
    std::fs::write(folder.join("wootz-metal.md"), text).unwrap();
    let failures: Vec<&Failure> = outcome.logs.iter().flat_map(|log| &log.failures).collect();
    let checks = outcome.logs.iter().map(|log| log.checks).sum();
    note_failures(checks, failures.iter().copied());
    let line =
        |failure: &&Failure| format!("{}: {}: {}", failure.op, failure.place, failure.message);
    let text: Vec<String> = failures.iter().take(100).map(line).collect();
    assert!(failures.is_empty(), "{}\n{} failures", text.join("\n"), failures.len());
}

/// For programs that ask what failed: the number of checks, then a line for each failure, with
/// operation, place and message between tabs.
#[cfg(feature = "gpu")]
fn note_failures<'a>(checks: usize, failures: impl Iterator<Item = &'a Failure>) {
    let Some(path) = std::env::var_os("WOOTZ_FAILURES") else { return };
    let mut text = format!("{checks}\n");
    for Failure { op, place, message } in failures {
        text += &format!("{op}\t{place}\t{}\n", message.replace('\n', " "));
    }
    std::fs::write(path, text).unwrap();
}

/// An operation registers once and with cases.
fn check_names(entries: &[wootz::op::Entry]) {
    let mut seen = BTreeSet::new();
    for entry in entries {
        assert!(seen.insert(entry.name), "{} is registered twice", entry.name);
        assert!(!entry.cases.is_empty(), "{} has no cases", entry.name);
    }
}

fn count_names(subjects: &[Subject]) -> usize {
    subjects.iter().map(|subject| subject.op).collect::<BTreeSet<_>>().len()
}

/// Every kernel text that was launched is accepted by naga and can become MSL.
#[cfg(feature = "gpu")]
fn kernel_texts(devices: &Devices) -> Vec<Failure> {
    let mut texts = Vec::new();
    for device in [&devices.plain, &devices.checked, &devices.small] {
        texts.extend(device.as_gpu().unwrap().take_traced_kernels());
    }
    let mut seen = BTreeSet::new();
    texts.retain(|(_, text)| seen.insert(text.clone()));
    println!("{} kernel texts", texts.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let watchdog = Watchdog::start();
        let mut failures = Vec::new();
        while let Some((key, text)) = texts.get(next.fetch_add(1, Ordering::Relaxed)) {
            watchdog.begin(format!("the translation of {key}"));
            if let Err(message) = harness::wgsl::check(text) {
                failures.push(Failure { op: key.op, place: key.to_string(), message });
            }
        }
        failures
    };
    std::thread::scope(|scope| {
        let workers = [scope.spawn(work), scope.spawn(work)];
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    })
}

/// Operations need a reference or a reason for having none; a reason for one that has is stale.
#[cfg(feature = "gpu")]
fn missing_references(subjects: &[Subject]) -> Vec<Failure> {
    let names: BTreeSet<&'static str> = subjects.iter().map(|subject| subject.op).collect();
    let mut failures = Vec::new();
    for op in names {
        let has = subjects.iter().any(|subject| subject.op == op && subject.reference.is_some());
        let excused = harness::reference::WITHOUT.iter().any(|(name, _)| *name == op);
        let message = match (has, excused) {
            (false, false) => "has neither a reference nor a reason for having none",
            (true, true) => "has a reference and a reason for having none",
            _ => continue,
        };
        failures.push(Failure { op, place: "reference".into(), message: message.into() });
    }
    failures
}

/// A dimension of a launch holds 65,535 workgroups; larger grids must spread over two.
#[cfg(feature = "gpu")]
#[test]
fn more_than_65535_workgroups_are_launched_right() {
    let Some(Devices { plain: gpu, .. }) = harness::gpu::devices() else { return };
    let cpu = wootz::Device::cpu();
    type Call = fn(&wootz::Array) -> wootz::Result<wootz::Array>;
    let rows: &[usize] = &[70_000, 2];
    let calls: &[(&str, wootz::DType, &[usize], Call)] = &[
        ("elementwise", wootz::DType::F32, &[65_536 * 64 + 5], |x| wootz::add(x, 1)),
        ("packed elementwise", wootz::DType::U8, &[65_536 * 256 + 5], |x| wootz::add(x, 1)),
        ("softmax", wootz::DType::F32, rows, |x| wootz::softmax(x, -1)),
        ("sum of rows", wootz::DType::F32, rows, |x| wootz::sum(x, -1, false)),
        ("sum of columns", wootz::DType::F32, &[2, 70_000], |x| wootz::sum(x, 0, false)),
        ("max of rows", wootz::DType::F16, rows, |x| wootz::max(x, -1, false)),
    ];
    for (name, dtype, shape, call) in calls {
        let count = shape.iter().product();
        // Repeats after a prime, so that a group in the wrong place shows.
        let values: Vec<f64> = (0..count).map(|i: usize| (i % 251) as f64 / 2.0).collect();
        let host = harness::data::Host::from_f64(shape, *dtype, &values);
        let run = |device: &wootz::Device| {
            let result = call(&host.array(device).unwrap()).unwrap();
            harness::data::Host::read(&result).unwrap()
        };
        let class = wootz::op::Tolerance::Reduction;
        let against = harness::tolerance::Against::Device;
        let (got, want) = (run(&gpu), run(&cpu));
        let outcome = harness::tolerance::compare(&got, &want, None, class, against, *dtype);
        assert_eq!(outcome, Ok(()), "{name}");
    }
}
