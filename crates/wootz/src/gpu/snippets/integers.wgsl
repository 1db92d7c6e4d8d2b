// Integer functions where WGSL has none or leaves the edges to the driver, for a type $T and the
// unsigned type $U of its width.

fn wz_sign_$T(x: $T) -> $T {
    return select($T(0), $T(1), x > $T(0)) - select($T(0), $T(1), x < $T(0));
}

// Wraps; a negative exponent gives 0.
fn wz_power_$T(x: $T, y: $T) -> $T {
    if y < $T(0) { return $T(0); }
    var base = x;
    var e = $U(y);
    var r = $T(1);
    while e != $U(0) {
        if (e & $U(1)) != $U(0) { r = r * base; }
        base = base * base;
        e = e >> 1u;
    }
    return r;
}

// Truncated division through the magnitudes: drivers may do anything for a divisor of 0 (the
// quotient is 0 here) and for the smallest number divided by -1 (it wraps).
fn wz_truncated_$T(a: $T, b: $T) -> $T {
    let m = select($U(a), $U(0) - $U(a), a < $T(0));
    let d = select($U(b), $U(0) - $U(b), b < $T(0));
    let q = $T(m / select(d, $U(1), b == $T(0)));
    return select(select(q, $T(0) - q, (a < $T(0)) != (b < $T(0))), $T(0), b == $T(0));
}

// With the sign of the divisor; the dividend if that is 0.
fn wz_remainder_$T(a: $T, b: $T) -> $T {
    let r = a - wz_truncated_$T(a, b) * b;
    return select(r, r + b, r != $T(0) && b != $T(0) && (r < $T(0)) != (b < $T(0)));
}

// Rounded down.
fn wz_quotient_$T(a: $T, b: $T) -> $T {
    let q = wz_truncated_$T(a, b);
    return select(q, q - $T(1), a - q * b != $T(0) && b != $T(0) && (a < $T(0)) != (b < $T(0)));
}
