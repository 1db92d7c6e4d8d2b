// A workgroup routes a row: scores, the best of them one by one, and their weights. What is compared are integers in the
// order of the numbers, so that NaN has its place whatever the driver assumes.
struct Params { rows: u32, scale: u32, logits: u32, bias: u32, factor: u32 }
var<immediate> p: Params;

const SIZE = EXPERTS / GROUPS;
// Below and above every number.
const TAKEN = 0u;
const LOWEST = 1u;
const MASKED = 0x007fffffu;
const HIGHEST = 0xffffffffu;

var<workgroup> scores: array<f32, EXPERTS>;
var<workgroup> keys: array<u32, EXPERTS>;
var<workgroup> group_keys: array<u32, GROUPS>;
var<workgroup> chosen: array<u32, K>;
var<workgroup> sums: array<f32, WIDTH>;
var<workgroup> most: array<u32, WIDTH>;
var<workgroup> places: array<u32, WIDTH>;

// Where a number is among all; zeros of either sign are one.
fn key_of(x: f32, nan: u32) -> u32 {
    let bits = bitcast<u32>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return nan; }
    if ((bits & 0x7fffffffu) == 0u) { return 0x80000000u; }
    return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

fn number_of(key: u32) -> f32 {
    if (key == LOWEST || key == HIGHEST) { return wz_nan(); }
    return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u));
}

// Where NaN is.
fn nan_key() -> u32 { return select(LOWEST, HIGHEST, HIGHER); }

// Whether the first of two is the better one.
fn beats(key: u32, place: u32, other: u32, other_place: u32) -> bool {
    if (key != other) { return key > other; }
    if (HIGHER) { return place > other_place; }
    return place < other_place;
}

fn group_sum(value: f32, lid: u32) -> f32 {
    workgroupBarrier();
    sums[lid] = value;
    workgroupBarrier();
    for (var half = WIDTH / 2u; half > 0u; half = half / 2u) {
        if (lid < half) { sums[lid] += sums[lid + half]; }
        workgroupBarrier();
    }
    return sums[0];
}

// The best of what the threads have.
fn group_best(key: u32, place: u32, lid: u32) -> vec2<u32> {
    workgroupBarrier();
    most[lid] = key;
    places[lid] = place;
    workgroupBarrier();
    for (var half = WIDTH / 2u; half > 0u; half = half / 2u) {
        if (lid < half && beats(most[lid + half], places[lid + half], most[lid], places[lid])) {
            most[lid] = most[lid + half];
            places[lid] = places[lid + half];
        }
        workgroupBarrier();
    }
    return vec2<u32>(most[0], places[0]);
}

// Scores of a softmax. Any NaN, a positive infinity, or nothing but negative ones make all of them NaN.
fn soften(row: u32, lid: u32) {
    var highest = LOWEST;
    for (var i = lid; i < EXPERTS; i += WIDTH) {
        highest = max(highest, key_of(logits(p.logits + row * EXPERTS + i), HIGHEST));
    }
    highest = group_best(highest, lid, lid).x;
    // From the key of infinity on, or that of its negative.
    let undefined = highest >= 0xff800000u || highest <= MASKED;
    let shift = number_of(select(highest, 0x80000000u, undefined));
    var sum = 0.0;
    for (var i = lid; i < EXPERTS; i += WIDTH) {
        let x = logits(p.logits + row * EXPERTS + i);
        let power = wz_exp(x - shift);
        scores[i] = select(power, 0.0, key_of(x, HIGHEST) <= MASKED);
        sum += scores[i];
    }
    let factor = 1.0 / group_sum(sum, lid);
    for (var i = lid; i < EXPERTS; i += WIDTH) {
        scores[i] = select(rounded(scores[i] * factor), wz_nan(), undefined);
    }
}

// Leaves only the best groups.
fn mask_groups(lid: u32) {
    for (var group = lid; group < GROUPS; group += WIDTH) {
        var sum = 0.0;
        var undefined = false;
        var last = HIGHEST;
        var last_place = 0xffffffffu;
        for (var turn = 0u; turn < BEST; turn++) {
            // The best of those behind the last one; NaN is the highest.
            var key = TAKEN;
            var place = 0u;
            for (var i = 0u; i < SIZE; i++) {
                let own = group * SIZE + i;
                let other = select(keys[own], HIGHEST, keys[own] == LOWEST);
                let behind = other < last || (other == last && own < last_place);
                if (behind && (other > key || (other == key && own > place))) {
                    key = other;
                    place = own;
                }
            }
            last = key;
            last_place = place;
            undefined = undefined || key == HIGHEST;
            sum += number_of(select(key, 0x80000000u, key == HIGHEST));
        }
        let total = rounded_preferred(sum);
        group_keys[group] = select(key_of(total, nan_key()), nan_key(), undefined);
    }
    workgroupBarrier();
    for (var i = lid; i < EXPERTS; i += WIDTH) {
        let group = i / SIZE;
        var better = 0u;
        for (var other = 0u; other < GROUPS; other++) {
            if (beats(group_keys[other], other, group_keys[group], group)) { better++; }
        }
        if (better >= KEEP) { keys[i] = MASKED; }
    }
    workgroupBarrier();
}

@compute @workgroup_size(WIDTH)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
    let row = wid.x + wid.y * groups.x;
    if (row >= p.rows) { return; }
    if (SOFTMAX) {
        soften(row, lid);
    } else {
        for (var i = lid; i < EXPERTS; i += WIDTH) {
            scores[i] = wz_sigmoid(logits(p.logits + row * EXPERTS + i));
        }
    }
    for (var i = lid; i < EXPERTS; i += WIDTH) {
        var value = scores[i];
        if (BIASED) { value = rounded_preferred(value + bias(p.bias + i)); }
        keys[i] = key_of(value, nan_key());
    }
    workgroupBarrier();
    if (GROUPS > 1u) { mask_groups(lid); }
    for (var turn = 0u; turn < K; turn++) {
        var key = TAKEN;
        var place = lid;
        for (var i = lid; i < EXPERTS; i += WIDTH) {
            if (keys[i] != TAKEN && (key == TAKEN || beats(keys[i], i, key, place))) {
                key = keys[i];
                place = i;
            }
        }
        let found = group_best(key, place, lid);
        if (lid == 0u) {
            chosen[select(turn, K - 1u - turn, HIGHER)] = found.y;
            keys[found.y] = TAKEN;
        }
        workgroupBarrier();
    }
    var all = 1.0;
    // NaN is told by bits, and said by bits.
    var undefined = false;
    if (RENORMALISE) {
        all = 0.0;
        for (var i = 0u; i < K; i++) {
            all += scores[chosen[i]];
            undefined = undefined || wz_isnan(scores[chosen[i]]);
        }
        all = rounded(all);
        if (!SOFTMAX) { all += 1e-20; }
    }
    for (var i = lid; i < K; i += WIDTH) {
        let expert = chosen[i];
        var weight = scores[expert];
        if (RENORMALISE) { weight = rounded(weight / all); }
        if (SCALED) { weight = rounded(weight * rounded(bitcast<f32>(p.scale))); }
        if (FACTORS) { weight = rounded(weight * factor(p.factor + expert)); }
        indices_set(row * K + i, expert);
        weights_set(row * K + i, select(weight, wz_nan(), undefined || wz_isnan(scores[expert])));
    }
}
