# Reference values of R's `sampling` package (Debian: r-base-core, r-cran-sampling), for
# tests/extra/r/test_sampling_package.py:
#
#     Rscript tests/extra/r/golden_designs.R > tests/extra/r/golden_designs.json
#
# For each vector of inclusion probabilities: the weights of conditional Poisson sampling (maximum entropy) as
# log odds, its joint inclusion probabilities and those of systematic sampling, and how often each set was drawn by
# UPmaxentropy and UPsystematic in 20000 draws.
suppressPackageStartupMessages(library(sampling))
set.seed(1)

examples <- list(
  c(0.07, 0.17, 0.41, 0.61, 0.83, 0.91),
  c(0.5, 0.5, 0.5, 0.5),
  c(0.2, 0.7, 0.8, 0.5, 0.4, 0.4),
  c(0.95, 0.9, 0.6, 0.3, 0.15, 0.06, 0.04)
)
draws <- 20000

numbers <- function(x) paste0("[", paste(sprintf("%.15g", x), collapse = ", "), "]")
matrix_rows <- function(m) paste0("[", paste(apply(m, 1, numbers), collapse = ", "), "]")

counts <- function(design, pik) {
  found <- table(replicate(draws, paste(design(pik), collapse = "")))
  paste0("{", paste(sprintf('"%s": %d', names(found), as.integer(found)), collapse = ", "), "}")
}

entries <- sapply(examples, function(pik) {
  tilde <- UPMEpiktildefrompik(pik, eps = 1e-13)
  paste0(
    '  {"probs": ', numbers(pik),
    ',\n   "log_odds": ', numbers(log(tilde / (1 - tilde))),
    ',\n   "maximum_entropy": ', matrix_rows(UPmaxentropypi2(pik)),
    ',\n   "systematic": ', matrix_rows(UPsystematicpi2(pik)),
    ',\n   "maximum_entropy_counts": ', counts(UPmaxentropy, pik),
    ',\n   "systematic_counts": ', counts(UPsystematic, pik), "}"
  )
})
cat("[\n", paste(entries, collapse = ",\n"), "\n]\n", sep = "")
