"""Operations, on both stores."""
