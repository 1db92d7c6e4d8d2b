//! `wootz devices`: a table of devices, and why the default is the default.

use wootz::Device;
use wootz::gpu::{AdapterKind, AdapterSummary, adapters};

use crate::text::{bytes, print_table};

/// Prints the table, and with `verbose` every limit.
pub(crate) fn run(verbose: bool) -> anyhow::Result<()> {
    let (default, reason) = Device::choose();
    let adapters = adapters();
    let mut rows = vec![[
        "DEVICE".to_string(),
        "NAME".to_string(),
        "BACKEND".to_string(),
        "KIND".to_string(),
        "MEMORY".to_string(),
        "BUFFER".to_string(),
        "FEATURES".to_string(),
    ]];
    rows.push([
        "cpu".into(),
        format!("{} threads", wootz::threads()),
        "native".into(),
        "cpu".into(),
        bytes(Device::cpu().memory().limit),
        String::new(),
        "f64".into(),
    ]);
    for adapter in &adapters {
        rows.push([
            format!("gpu:{}", adapter.index),
            name(adapter),
            adapter.backend.clone(),
            kind(adapter.kind).into(),
            adapter.working_set_bytes.map_or_else(|| "unknown".into(), bytes),
            bytes(adapter.max_buffer_bytes),
            adapter.features.join(" "),
        ]);
    }
    print_table(&rows);
    println!();
    let name = match default.as_gpu() {
        None => "cpu".to_string(),
        Some(gpu) => format!("gpu:{}", gpu.summary().index),
    };
    println!("The default is {name}: {reason}.");
    if verbose {
        adapters.iter().for_each(print_limits);
    }
    Ok(())
}

/// With the families of GPUs where they are known: what a kernel may count on.
fn name(adapter: &AdapterSummary) -> String {
    match &adapter.family {
        Some(family) => format!("{} ({family})", adapter.name),
        None => adapter.name.clone(),
    }
}

fn kind(kind: AdapterKind) -> &'static str {
    match kind {
        AdapterKind::Discrete => "discrete",
        AdapterKind::Integrated => "integrated",
        AdapterKind::Virtual => "virtual",
        AdapterKind::Software => "software",
        _ => "other",
    }
}

fn print_limits(adapter: &AdapterSummary) {
    println!("\ngpu:{} {} ({})", adapter.index, adapter.name, adapter.driver);
    if let Some(family) = &adapter.family {
        println!("  GPU families              {family}");
    }
    if let Some(memory) = adapter.working_set_bytes {
        println!("  recommended working set   {} (the default memory limit)", bytes(memory));
    }
    println!("  largest buffer            {}", bytes(adapter.max_buffer_bytes));
    println!("  largest binding           {}", bytes(adapter.max_binding_bytes));
    println!("  storage buffers           {}", adapter.max_storage_buffers);
    println!("  workgroup threads         {}", adapter.max_workgroup_invocations);
    println!("  workgroup memory          {}", bytes(adapter.workgroup_memory_bytes.into()));
    println!("  subgroup size (reported)  {}..{}", adapter.subgroup_min, adapter.subgroup_max);
}
