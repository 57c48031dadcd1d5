# Reference values of R's `sampling` package (Debian: r-base-core, r-cran-sampling), for
# tests/extra/r/test_sampling_package.py:
#
#     Rscript tests/extra/r/golden_designs.R > tests/extra/r/golden_designs.json
#
# "designs", for each vector of inclusion probabilities: the weights of conditional Poisson sampling (maximum entropy) as
# log odds; joint inclusion probabilities of four designs; how often each set was drawn; and for the first k
# units as a sample the estimates of a total and of its variance (for maximum entropy).
# "sizes": probabilities proportional to size. "certain": what the package does with units of probability 1.
# "cube": the spread of balanced totals.
suppressPackageStartupMessages(library(sampling))
set.seed(1)

examples <- list(
  c(0.07, 0.17, 0.41, 0.61, 0.83, 0.91),
  c(0.5, 0.5, 0.5, 0.5),
  c(0.2, 0.7, 0.8, 0.5, 0.4, 0.4),
  c(0.95, 0.9, 0.6, 0.3, 0.15, 0.06, 0.04)
)

numbers <- function(x) paste0("[", paste(sprintf("%.15g", x), collapse = ", "), "]")
matrix_rows <- function(m) paste0("[", paste(apply(m, 1, numbers), collapse = ", "), "]")

counts <- function(design, pik, draws = 20000) {
  found <- table(replicate(draws, paste(as.integer(round(design(pik))), collapse = "")))
  paste0("{", paste(sprintf('"%s": %d', names(found), as.integer(found)), collapse = ", "), "}")
}

entries <- sapply(examples, function(pik) {
  tilde <- UPMEpiktildefrompik(pik, eps = 1e-13)
  joint <- UPmaxentropypi2(pik)
  y <- seq_along(pik)^2
  drawn <- seq_len(round(sum(pik)))
  paste0(
    '  {"probs": ', numbers(pik),
    ',\n   "log_odds": ', numbers(log(tilde / (1 - tilde))),
    ',\n   "maximum_entropy": ', matrix_rows(joint),
    ',\n   "systematic": ', matrix_rows(UPsystematicpi2(pik)),
    ',\n   "tille": ', matrix_rows(UPtillepi2(pik)),
    ',\n   "midzuno": ', matrix_rows(UPmidzunopi2(pik)),
    ',\n   "maximum_entropy_counts": ', counts(UPmaxentropy, pik),
    ',\n   "systematic_counts": ', counts(UPsystematic, pik),
    ',\n   "tille_counts": ', counts(UPtille, pik, 4000),
    ',\n   "midzuno_counts": ', counts(UPmidzuno, pik, 4000),
    ',\n   "sequential_pivotal_counts": ', counts(UPpivotal, pik),
    ',\n   "random_pivotal_counts": ', counts(UPrandompivotal, pik, 4000),
    ',\n   "total": ', numbers(HTestimator(y[drawn], pik[drawn])),
    ',\n   "hajek": ', numbers(suppressWarnings(Hajekestimator(y[drawn], pik[drawn], type = "mean"))),
    ',\n   "variances": ', numbers(c(
      varHT(y[drawn], joint[drawn, drawn, drop = FALSE], 1),
      varHT(y[drawn], joint[drawn, drawn, drop = FALSE], 2)
    )), "}"
  )
})

sizes <- list(1:20, c(1, 2, 3, 14), c(0, 5, 5, 1, 100, 40), c(8, 7, 1, 0.5, 0.25, 0.1))
proportional <- sapply(sizes, function(a) {
  by_k <- sapply(1:3, function(k) numbers(suppressWarnings(inclusionprobabilities(a, k))))
  paste0('  {"sizes": ', numbers(a), ', "probs": [', paste(by_k, collapse = ", "), "]}")
})

# A unit with probability 1, and two that share the rest.
certain <- c(1, 0.5, 0.5)
outcome <- function(call) {
  tryCatch(paste(as.vector(call), collapse = " "), error = function(e) paste("error:", conditionMessage(e)))
}
behaviour <- paste0(
  '  {"probs": ', numbers(certain),
  ', "maximum_entropy_counts": ', tryCatch(counts(UPmaxentropy, certain, 1000), error = function(e) "{}"),
  ',\n   "maximum_entropy_pi2": "', outcome(UPmaxentropypi2(certain)),
  '",\n   "all_certain": "', outcome(UPmaxentropy(c(1, 1, 0))),
  '",\n   "tille_pi2": "', outcome(UPtillepi2(certain)),
  '",\n   "all_certain_tille": "', outcome(UPtille(c(1, 1, 0))), '"}'
)

n <- 60
pik <- inclusionprobabilities(1 + (1:n %% 7), 15)
X <- cbind(pik, 1:n / n, (1:n %% 5) + 1)
errors <- t(replicate(300, {
  s <- samplecube(X, pik, 1, FALSE, method = 2)
  colSums(s * X / pik) / colSums(X) - 1
}))
cube <- paste0(
  '  {"probs": ', numbers(pik), ',\n   "balance": ', matrix_rows(X[, 2:3]),
  ',\n   "relative_errors": ', numbers(apply(errors[, 2:3], 2, sd)), "}"
)

cat('{"designs": [\n', paste(entries, collapse = ",\n"), "\n],\n",
  '"sizes": [\n', paste(proportional, collapse = ",\n"), "\n],\n",
  '"certain":\n', behaviour, ",\n",
  '"cube":\n', cube, "\n}\n", sep = ""
)
