// Reports the first end that is not in order, of queries and else of keys. Batches share them.
fn report_length(batch: u32) {
    if (batch > 0u) { return; }
    let query_end = wrong_query_end();
    let key_end = wrong_key_end();
    var site = p.site;
    var got = 0i;
    if (query_end <= p.sequences) {
        got = query_ends(p.length_offset + query_end);
    } else if (key_end <= p.sequences) {
        site += 1u;
        got = key_ends(p.key_ends_offset + key_end);
    } else {
        return;
    }
    if (atomicMin(&status[0], site) > site) { atomicStore(&status[1], bitcast<u32>(got)); }
}
