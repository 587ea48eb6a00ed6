//! Calls of window functions in `FROM`.

use datafusion::sql::sqlparser::ast::{self, Expr, FunctionArg, FunctionArgExpr};

use crate::refusal::PlanError;
use crate::statement::{folded, text};
use crate::table::duration;
use crate::window::Window;

/// `TUMBLE(table, time, size)` and `HOP(table, time, slide, size)`.
pub(crate) fn windowed(
    function: &str,
    args: &[FunctionArg],
) -> Result<(String, (Window, String)), PlanError> {
    let spans = match function {
        "tumble" => 1,
        "hop" => 2,
        "session" | "cumulate" => {
            return Err(PlanError::unsupported(
                function.to_uppercase(),
                "not yet; there are TUMBLE and HOP",
            ));
        }
        other => {
            return Err(PlanError::unsupported(
                format!("{other}() in FROM"),
                "there are TUMBLE and HOP",
            ));
        }
    };
    let plain: Option<Vec<&Expr>> = args.iter().map(argument).collect();
    let plain = plain.filter(|plain| plain.len() == 2 + spans);
    let usage = || {
        PlanError::invalid(
            "write TUMBLE(table, time, INTERVAL '1' MINUTE) or HOP(table, time, slide, size)",
        )
    };
    let plain = plain.ok_or_else(usage)?;
    let (Some(table), Some(time)) = (column(plain[0]), column(plain[1])) else {
        return Err(usage());
    };
    let lengths: Result<Vec<i64>, _> = plain[2..].iter().map(|span| interval(span)).collect();
    let window = match lengths?[..] {
        [size] => Window::new(size, size),
        [slide, size] => Window::new(size, slide),
        _ => return Err(usage()),
    };
    let window = window.map_err(PlanError::invalid)?;
    Ok((table, (window, time)))
}

fn argument(arg: &FunctionArg) -> Option<&Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        FunctionArg::Named {
            arg: FunctionArgExpr::Expr(expr),
            ..
        }
        | FunctionArg::ExprNamed {
            arg: FunctionArgExpr::Expr(expr),
            ..
        } => Some(expr),
        _ => None,
    }
}

/// A name, or `DESCRIPTOR(name)`.
fn column(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(folded(name)),
        Expr::Function(function)
            if function.name.to_string().eq_ignore_ascii_case("descriptor") =>
        {
            match &function.args {
                ast::FunctionArguments::List(list) => match &list.args[..] {
                    [arg] => column(argument(arg)?),
                    _ => None,
                },
                _ => None,
            }
        }
        _ => None,
    }
}

/// Milliseconds of `INTERVAL '5' SECOND` or `INTERVAL '5 seconds'`.
fn interval(expr: &Expr) -> Result<i64, PlanError> {
    let wrong = || {
        PlanError::invalid(format!(
            "{expr} is no span; write INTERVAL '5' SECOND, with SECOND, MINUTE, HOUR or DAY"
        ))
    };
    let Expr::Interval(interval) = expr else {
        return Err(wrong());
    };
    let text = text(&interval.value).ok_or_else(wrong)?;
    let unit = interval.leading_field.as_ref().map(ToString::to_string);
    let mut parts = text.split_whitespace();
    let number = parts.next().unwrap_or_default();
    let unit = match (unit, parts.next(), parts.next()) {
        (Some(unit), None, None) => unit,
        (None, Some(unit), None) => unit.to_uppercase(),
        _ => return Err(wrong()),
    };
    let short = match unit.trim_end_matches('S') {
        "MILLISECOND" => "ms",
        "SECOND" => "s",
        "MINUTE" => "m",
        "HOUR" => "h",
        "DAY" => "d",
        _ => return Err(wrong()),
    };
    let span = duration(&format!("{number}{short}"))?;
    i64::try_from(span.as_millis()).map_err(|_| wrong())
}
