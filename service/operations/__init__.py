"""Operations on runs, definitions and stores. Each exists once, for every surface that offers it."""
