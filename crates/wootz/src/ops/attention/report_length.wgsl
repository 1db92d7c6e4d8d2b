// Reports a length that there is no room for.
fn report_length(batch: u32) {
    let own = bitcast<u32>(length(p.length_offset + batch));
    if (own > p.keys && atomicMin(&status[0], p.site) > p.site) { atomicStore(&status[1], own); }
}
