//! A span per chain and an event per attempt, for feature `tracing`; nothing without it.
//!
//! Names are those of OpenTelemetry's semantic conventions where it has them: `error.type` (the error's class),
//! `http.request.resend_count` (the attempt), `otel.status_code`. Deliberately absent: the error's text, which can
//! carry secrets; the class and the rule that matched say what it is.

#[cfg(not(feature = "tracing"))]
pub(super) use off::Trace;
#[cfg(feature = "tracing")]
pub(super) use on::Trace;

#[cfg(feature = "tracing")]
mod on {
    use std::sync::{Mutex, PoisonError};
    use std::task::Poll;

    use tracing::level_filters::LevelFilter;
    use tracing::{Level, Span, field::Empty, info, info_span, warn};

    use crate::driver::SessionEvent;
    use crate::event::{Outcome, RetryEvent, RetryStart};

    /// The span of the open chain.
    #[derive(Default)]
    pub(in crate::shell) struct Trace(Mutex<Option<Span>>);

    impl Trace {
        /// Whether anybody might hear of it.
        pub(in crate::shell) fn is_on(&self) -> bool {
            LevelFilter::current() >= Level::WARN
        }

        pub(in crate::shell) fn note(&self, event: &SessionEvent) {
            match event {
                SessionEvent::Retry(RetryEvent::Start(start)) => {
                    let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                    let span = open.get_or_insert_with(|| chain(start.chain));
                    attempt(span, start);
                }
                SessionEvent::Retry(RetryEvent::End(end)) => {
                    let open = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
                    // A chain may end without a start.
                    let span = open.unwrap_or_else(|| chain(end.chain));
                    span.record("http.request.resend_count", end.attempt);
                    if let Some((class, _)) = &end.about {
                        span.record("error.type", class.name());
                    }
                    match &end.outcome {
                        Outcome::Success => {
                            span.record("otel.status_code", "OK");
                            info!(parent: &span, { "http.request.resend_count" = end.attempt }, "retry succeeded");
                        }
                        Outcome::Failure { reason, .. } => {
                            span.record("otel.status_code", "ERROR");
                            span.record("otel.status_description", reason.name());
                            warn!(
                                parent: &span,
                                {
                                    "http.request.resend_count" = end.attempt,
                                    "retry.end_reason" = reason.name(),
                                },
                                "retry given up",
                            );
                        }
                    }
                }
                SessionEvent::RunEnded { .. }
                | SessionEvent::Settled(_)
                | SessionEvent::HookPanicked { .. } => {}
            }
        }

        /// Calls `act` within the span of the open chain.
        #[cfg(feature = "blocking")]
        pub(in crate::shell) fn scope<R>(&self, act: impl FnOnce() -> R) -> R {
            self.span().in_scope(act)
        }

        /// Polls the future within the span of the chain that is open now.
        pub(in crate::shell) async fn within<F: Future>(&self, future: F) -> F::Output {
            let span = self.span();
            let mut future = std::pin::pin!(future);
            std::future::poll_fn(|cx| -> Poll<F::Output> {
                span.in_scope(|| future.as_mut().poll(cx))
            })
            .await
        }

        fn span(&self) -> Span {
            let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            open.clone().unwrap_or_else(Span::none)
        }
    }

    fn chain(number: u64) -> Span {
        info_span!(
            "retry chain",
            "otel.kind" = "internal",
            "otel.status_code" = Empty,
            "otel.status_description" = Empty,
            "error.type" = Empty,
            "http.request.resend_count" = Empty,
            "retry.chain" = number,
        )
    }

    fn attempt(span: &Span, start: &RetryStart<'_>) {
        info!(
            parent: span,
            {
                "http.request.resend_count" = start.attempt,
                "retry.max_attempts" = start.max_attempts,
                "retry.delay_ms" = start.delay_ms,
                "error.type" = start.class.name(),
                "retry.rule" = start.rule.as_str(),
            },
            "retry scheduled",
        );
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use crate::driver::SessionEvent;

    #[derive(Default)]
    pub(in crate::shell) struct Trace {}

    impl Trace {
        pub(in crate::shell) const fn is_on(&self) -> bool {
            false
        }

        pub(in crate::shell) fn note(&self, _: &SessionEvent) {}

        #[cfg(feature = "blocking")]
        pub(in crate::shell) fn scope<R>(&self, act: impl FnOnce() -> R) -> R {
            act()
        }

        pub(in crate::shell) fn within<F: Future>(&self, future: F) -> F {
            future
        }
    }
}
