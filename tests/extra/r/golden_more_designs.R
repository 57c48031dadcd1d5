# Reference values of R's `sampling` package (Debian: r-base-core, r-cran-sampling), for
# tests/extra/r/test_more_designs.py:
#
#     Rscript tests/extra/r/golden_more_designs.R > tests/extra/r/golden_more_designs.json
#
# For each vector of inclusion probabilities: the joint inclusion probabilities of Sampford's design, and how often each
# set was drawn by UPsampford and UPbrewer in 20000 draws. And what UPsampford says when asked for 60 of 300 units.
# UPopips is no reference for Pareto sampling: it draws sum(pik) uniform variables and not one for each unit.
suppressPackageStartupMessages(library(sampling))
set.seed(1)

examples <- list(
  c(0.07, 0.17, 0.41, 0.61, 0.83, 0.91),
  c(0.5, 0.5, 0.5, 0.5),
  c(0.2, 0.7, 0.8, 0.5, 0.4, 0.4)
)
draws <- 20000

numbers <- function(x) paste0("[", paste(sprintf("%.15g", x), collapse = ", "), "]")
matrix_rows <- function(m) paste0("[", paste(apply(m, 1, numbers), collapse = ", "), "]")

counts <- function(design, pik) {
  found <- table(replicate(draws, paste(design(pik), collapse = "")))
  paste0("{", paste(sprintf('"%s": %d', names(found), as.integer(found)), collapse = ", "), "}")
}

entries <- sapply(examples, function(pik) {
  paste0(
    '  {"probs": ', numbers(pik),
    ',\n   "sampford": ', matrix_rows(UPsampfordpi2(pik)),
    ',\n   "sampford_counts": ', counts(UPsampford, pik),
    ',\n   "brewer_counts": ', counts(UPbrewer, pik), "}"
  )
})

sizes <- inclusionprobabilities(exp(1.5 * rnorm(300)), 60)
answer <- tryCatch({ UPsampford(sizes); "a sample" }, error = function(e) conditionMessage(e))
cat("{\"designs\": [\n", paste(entries, collapse = ",\n"), "\n],\n", sep = "")
cat('"60_of_300": {"probs": ', numbers(sizes), ',\n "upsampford": "', answer, '"}}\n', sep = "")
